#!/bin/sh
# Accounts in slurmdbd. A second run changes nothing.
set -eu
have() { [ -n "$(sacctmgr --noheader --parsable2 show "$@")" ]; }
have cluster lab || sacctmgr --immediate --quiet add cluster lab >/dev/null
have account default || sacctmgr --immediate --quiet add account default cluster=lab >/dev/null
for user in alice bob; do
    have user "$user" || sacctmgr --immediate --quiet add user "$user" account=default >/dev/null
done
have user carol || sacctmgr --immediate --quiet add user carol account=default adminlevel=Admin >/dev/null
