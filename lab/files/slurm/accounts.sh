#!/bin/sh
# Cluster, account and users in slurmdbd. Adding what is there already fails and changes nothing; the last line tells.
set -u
sacctmgr --immediate --quiet add cluster lab
sacctmgr --immediate --quiet add account default cluster=lab
sacctmgr --immediate --quiet add user alice,bob,carol account=default
sacctmgr --immediate --quiet modify user carol set adminlevel=Admin
[ "$(sacctmgr --noheader --parsable2 show user carol withassoc format=user,account,adminlevel)" = "carol|default|Administrator" ]
