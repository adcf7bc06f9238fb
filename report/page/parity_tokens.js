// Shows the effect of the differences on tokens: the likeliest ones on both sides, and the
// continuation.

const isToken = (token) => token !== null && typeof token === 'object';

// Returns a token as text, or its id if it has no text.
function tokenLabel(token) {
  if (!isToken(token)) return absent(token) ? '' : `#${token}`;
  return absent(token.text) ? `#${token.id}` : tokenText(token.text);
}

const idOf = (token) => isToken(token) ? token.id : token;

function rankChange(row) {
  const change = row.expected_rank - row.ours_rank;
  if (Number.isNaN(change) || change === 0) return '';
  return change > 0 ? `▲ ${change}` : `▼ ${- change}`;
}

function probability(p) {
  if (absent(p)) return '';
  return p !== 0 && p < 0.0001 ? number(p) : p.toFixed(4);
}

const chance = (p) => [probability(p), shareBar(p)];

function candidatesOf(table) {
  const same = table.top.every(
      (row) =>
          row.expected_rank === row.ours_rank || Math.min(row.expected_rank, row.ours_rank) > 1);
  const heading = `After position ${table.position}${
      absent(table.token) ? '' : ` · ${tokenLabel(table.token)}`}`;
  const rows =
      [...table.top]
          .sort((a, b) => a.expected_rank - b.expected_rank)
          .map(
              (row) =>
                  [el('span', {class: 'token'}, tokenLabel(row.token ?? row)),
                   String(idOf(row.token ?? row.id) ?? ''), chance(row.expected), chance(row.ours),
                   count(row.expected_rank), count(row.ours_rank), rankChange(row)]);
  return el(
      'div', {},
      el('h3', {}, heading,
         el('span', {class: `tag ${table.why === 'worst' ? 'warning' : ''}`}, table.why)),
      el('p', {class: 'lead'}, `KL ${number(table.kl)}, max abs ${number(table.max_abs)}, `,
         same ? 'the same likeliest token' : 'another likeliest token'),
      simpleTable(
          heading, ['Token', '#Number', '#Expected', '#Ours', '#Rank', '#Our rank', '#Change'],
          rows));
}

function candidatesPart(prompt) {
  const tables = prompt.tables ?? [];
  if (tables.length === 0) return null;
  const worst = tables.filter((table) => table.why === 'worst');
  const first = tables.filter((table) => table.why !== 'worst');
  const of = (heading, list) => list.length === 0 ?
      null :
      [el('h3', {}, heading), el('div', {class: 'pair-tables'}, list.map(candidatesOf))];
  return [of('Positions with the largest divergence', worst), of('First positions', first)];
}

function tokenRow(tokens, others, heading) {
  return el(
      'div', {}, el('h3', {}, heading), el('div', {class: 'tokens'}, tokens.map((token, i) => {
        const differs = idOf(token) !== idOf(others[i]);
        return el(
            'span', {class: differs ? 'token differs' : 'token', title: `token ${idOf(token)}`},
            tokenLabel(token), differs ? el('span', {class: 'unseen'}, ' (differs)') : null,
            isToken(token) && !absent(token.text) ? null : ' ');
      })));
}

function greedyPart(prompt) {
  const {greedy} = prompt;
  if (!greedy) return null;
  const all = greedy.match === greedy.total;
  const text = all ? `All ${plural(greedy.total, 'token')} are the same.` :
                     `${count(greedy.match)} of ${plural(greedy.total, 'token')} are the same` +
          (greedy.tie ? '; errors within the bounds explain what differs.' : '.');
  const whole = (heading, value) => absent(value) ?
      null :
      el('div', {}, el('h3', {}, heading), el('div', {class: 'tokens'}, plainLines(value)));
  return [
    el('p', {},
       verdict(
           all            ? true :
               greedy.tie ? null :
                            false,
           text)),
    el('div', {class: 'text-pair'},
       tokenRow(greedy.expected ?? [], greedy.ours ?? [], 'Expected, token by token'),
       tokenRow(greedy.ours ?? [], greedy.expected ?? [], 'Ours, token by token'),
       whole('Expected, as text', greedy.expected_text), whole('Ours, as text', greedy.ours_text))
  ];
}
