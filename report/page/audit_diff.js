// The page of audit --diff shows a treemap by change, a table of views and a table of changes.

const changeNames = {
  changed: 'changed',
  new: 'new',
  removed: 'removed',
  moved: 'moved',
  renamed: 'renamed',
  equal: 'equal',
};

// Grown items are red and shrunk ones green. Each has a pattern for readers who do not see the
// colours.
function changeLook(row, theme) {
  const sign = Math.sign(row.delta);
  const fill = sign > 0 ? theme.more : sign < 0 ? theme.less : theme.grey;
  const hatch = row.change === 'new'            ? 'grid' :
      row.change === 'removed'                  ? 'cross' :
      sign > 0                                  ? 'dots' :
      sign < 0                                  ? 'level' :
      ['moved', 'renamed'].includes(row.change) ? 'diagonal' :
                                                  null;
  return {fill, hatch, mark: row.change === 'equal' ? undefined : signedBytes(row.delta)};
}

function changeLegend() {
  const entry = (tone, hatch, text) =>
      el('span', {class: 'key'},
         el('span', {class: `swatch ${tone} ${hatch}`, 'aria-hidden': 'true'}), text);
  return el(
      'div', {class: 'keys'}, entry('more', 'grid', 'new'), entry('more', 'dots', 'grown'),
      entry('less', 'level', 'shrunk'), entry('less', 'cross', 'removed'),
      entry('grey', 'diagonal', 'moved or renamed'), entry('grey', '', 'equal'));
}

function changeDetails(node) {
  const row = node.leaf;
  if (!row)
    return {
      title: node.label,
      rows: [['size', bytesIn(node)], ['parts', count(node.children.length)]]
    };
  const rows = [
    ['change', changeNames[row.change] ?? row.change], ['old', count(row.old)],
    ['new', count(row.new)], ['delta', signedCount(row.delta)]
  ];
  if (row.old_name) rows.push(['old name', plain(row.old_name)]);
  if (row.note) rows.push(['note', plain(row.note)]);
  return {title: node.title || node.label, rows};
}

function diffMap(diff, items) {
  const measures = {new: 'New size', old: 'Old size', change: 'Change'};
  const roots = new Map(Object.keys(measures).map(
      (measure) => [measure, lazily(() => diffTree(diff, items, measure))]));
  const known = (mode) => roots.has(mode) ? mode : 'change';
  const map = new Treemap({
    id: 'diff',
    label: 'Map of changes',
    roots,
    mode: known(state.get('diffsize')),
    look: (node, theme) => node.leaf ? changeLook(node.leaf, theme) : {fill: theme.grey},
    details: changeDetails,
    legend: changeLegend
  });
  const picker = choice('Area', Object.entries(measures), known(state.get('diffsize')), (mode) => {
    state.set('diffsize', mode);
    picker.show(mode);
    map.setMode(mode);
  });
  return [el('div', {class: 'toolbar'}, picker.node), map.node];
}

const deltaClass = (delta) => delta > 0 ? 'more-text' : delta < 0 ? 'less-text' : '';
const deltaColumn = {
  key: 'delta',
  label: 'Delta',
  numeric: true,
  value: (row) => Math.abs(row.delta),
  text: (row) => signedCount(row.delta),
  cell: (row) => el('span', {class: deltaClass(row.delta)}, signedCount(row.delta))
};
const sizeColumns = [
  {key: 'old', label: 'Old', numeric: true, value: (row) => row.old, text: (row) => count(row.old)},
  {key: 'new', label: 'New', numeric: true, value: (row) => row.new, text: (row) => count(row.new)},
  deltaColumn, {
    key: 'percent',
    label: 'Of the old',
    numeric: true,
    value: (row) => row.old ? row.delta / row.old : undefined,
    text: (row) => row.old ? signed(row.delta, percent(row.delta, row.old)) : ''
  }
];

function changesTable(diff, items) {
  const kindOf = (row) => row.kind || items[row.item]?.kind || '';
  const sum = (rows) => signedBytes(rows.reduce((all, row) => all + row.delta, 0)) || '0 B';
  return new Table({
    id: 'changes',
    label: 'Changes',
    rows: diff.rows,
    sort: '-delta',
    summary: sum,
    columns: [
      {
        key: 'name',
        label: 'Name',
        class: 'name',
        value: (row) => row.name,
        text: (row) => plain(row.name),
        cell: (row) =>
            [plain(row.name),
             row.old_name ? el('span', {class: 'under'}, `was ${plain(row.old_name)}`) : null]
      },
      {
        key: 'change',
        label: 'Change',
        facet: true,
        value: (row) => row.change,
        cell: (row) =>
            el('span', {class: `tag ${row.change}`}, changeNames[row.change] ?? row.change)
      },
      {key: 'kind', label: 'Kind', facet: true, value: kindOf}, ...sizeColumns, {
        key: 'note',
        label: 'Note',
        value: (row) => row.note ?? '',
        text: (row) => plain(row.note ?? '')
      }
    ]
  });
}

function diffViews(diff) {
  const names = Object.keys(viewNames).filter((name) => diff.views?.[name]?.length > 0);
  if (names.length === 0) return null;
  const place = el('div');
  const show = (name) => {
    const table = new Table({
      id: `diff.${name}`,
      label: `Changes by ${viewNames[name].toLowerCase()}`,
      search: false,
      rows: diff.views[name],
      sort: '-delta',
      columns: [
        {
          key: 'key',
          label: viewNames[name],
          value: (row) => layerKey(row.key),
          text: (row) => row.key === '' ? '(does not apply)' : plain(row.key)
        },
        ...sizeColumns
      ]
    });
    place.replaceChildren(table.node);
    picker.show(name);
  };
  const picker = choice('By', names.map((name) => [name, viewNames[name]]), '', show);
  show(names[0]);
  return el('details', {class: 'fold'}, el('summary', {}, 'Changes summed up'), picker.node, place);
}

function diffSection(audit) {
  const {diff} = audit;
  if (!diff) return null;
  const how = diff.compared === 'content' ? 'Contents were compared by digest.' :
                                            'Sizes and types were compared; contents were not.';
  const lead = `${plain(diff.old.name)} (${bytes(diff.old.bytes)}) → ${plain(diff.new.name)} (${
                   bytes(diff.new.bytes)}): ` +
      `${signedCount(diff.delta)} bytes, ${
                   signed(diff.delta, percent(diff.delta, diff.old.bytes))}. ` +
      `Equal: ${plural(diff.equal.count, 'item')}, ${bytes(diff.equal.bytes)}. ${how}`;
  return section(
      'diff', 'Changes', lead,
      diff.rows.length > 0 ?
          [diffMap(diff, audit.items), diffViews(diff), changesTable(diff, audit.items).node] :
          el('p', {}, verdict(null, 'Nothing changed.')));
}
