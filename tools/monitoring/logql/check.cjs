// Copyright: mission_control.job_recovery contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// Parses each query of a JSON list on standard input with the grammar of Grafana's LogQL editor, and prints a JSON list
// with, for each of them, where it is no LogQL: the text from there on, or null. The grammar recovers from errors and
// marks them in the tree.
const { parser } = require('@grafana/lezer-logql');

function trouble(query) {
  let found = null;
  parser.parse(query).iterate({
    enter: (node) => {
      if (node.type.isError && found === null) {
        found = query.slice(node.from) || '(end)';
      }
    },
  });
  return found;
}

const queries = JSON.parse(require('fs').readFileSync(0, 'utf8'));
process.stdout.write(JSON.stringify(queries.map(trouble)));
