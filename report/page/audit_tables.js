// The tables of an audit: views, items, findings, the budget, the breakdown of bytes, memory.

const bytesColumn = (total, more = {}) => ({
  key: 'bytes',
  label: 'Bytes',
  numeric: true,
  value: (row) => row.bytes,
  text: (row) => count(row.bytes),
  share: (row) => row.bytes / total,
  ...more
});
const shareColumn = (total) => ({
  key: 'share',
  label: 'Share',
  numeric: true,
  value: (row) => row.bytes,
  text: (row) => percent(row.bytes, total)
});

const viewNames = {
  kind: 'Kind',
  component: 'Component',
  layer: 'Layer',
  dtype: 'Stored as',
  file: 'File',
  rule: 'Rule'
};

function viewTable(name, rows, total) {
  const keyText = (row) => row.key === '' ? '(does not apply)' : plain(row.key);
  return new Table({
    id: `view.${name}`,
    label: `Bytes by ${viewNames[name].toLowerCase()}`,
    rows,
    search: rows.length > 15,
    sort: '-bytes',
    columns: [
      {
        key: 'key',
        label: viewNames[name],
        value: (row) => layerKey(row.key),
        text: keyText,
        class: 'name'
      },
      {
        key: 'count',
        label: 'Items',
        numeric: true,
        value: (row) => row.count,
        text: (row) => count(row.count)
      },
      {
        key: 'elements',
        label: 'Elements',
        numeric: true,
        value: (row) => row.elements,
        text: (row) => row.elements ? count(row.elements) : ''
      },
      {
        key: 'bits',
        label: 'Bits per element',
        numeric: true,
        value: bitsOf,
        text: (row) => fixed(bitsOf(row))
      },
      bytesColumn(total), shareColumn(total)
    ]
  });
}

// Keys of layers are sorted as numbers.
const layerKey = (key) => /^\d+$/.test(key) ? Number(key) : key;
const bitsOf = (row) => row.elements > 0 ? 8 * row.bytes / row.elements : undefined;
const fixed = (x) => absent(x) ? '' : x.toFixed(2);

function viewsSection(audit) {
  const names = Object.keys(viewNames).filter(
      (name) => (audit.views?.[name] ?? []).some((row) => row.key !== ''));
  if (names.length === 0) return null;
  const place = el('div');
  const made = new Map();
  const show = (name) => {
    if (!made.has(name)) made.set(name, viewTable(name, audit.views[name], audit.totals.bytes));
    place.replaceChildren(made.get(name).node);
    picker.show(name);
  };
  const known = (name) => names.includes(name) ? name : names[0];
  const picker = choice('By', names.map((name) => [name, viewNames[name]]), '', (name) => {
    state.set('view', name);
    show(name);
  });
  show(known(state.get('view')));
  state.onMove(() => show(known(state.get('view'))));
  return section(
      'views', 'Breakdown', 'The rows of each view add up to the size on disk.', picker.node,
      place);
}

function marksOf(item) {
  return [
    item.duplicate ? 'duplicate' : '', item.tied?.length > 0 ? 'tied' : '',
    item.unused ? 'unused' : '', item.part > 0 ? `part ${item.part}` : ''
  ].filter((mark) => mark !== '');
}

// `pick(item)` shows an item in the map.
function itemsTable(audit, pick) {
  const total = audit.totals.bytes;
  const path = (item) => fileName(audit, item.file);
  const nameCell = (item) =>
      [el('button',
          {type: 'button', class: 'link', title: 'Show in the map', click: () => pick(item)},
          plain(item.name || item.kind)),
       marksOf(item).map((mark) => el('span', {class: 'tag'}, mark)),
       item.tied?.length > 0 ?
           el('span', {class: 'under'}, `also ${item.tied.map(plain).join(', ')}`) :
           null,
  ];
  return new Table({
    id: 'items',
    label: 'Items',
    rows: audit.items,
    sort: '-bytes',
    search: false,
    summary: (rows) => summaryOf(rows, total),
    columns: [
      {
        key: 'name',
        label: 'Name',
        class: 'name',
        value: (item) => item.name ?? '',
        text: (item) => [plain(item.name || item.kind), ...marksOf(item), ...(item.tied ?? []),
                         item.use ?? '']
                            .join(' '),
        cell: nameCell
      },
      {key: 'kind', label: 'Kind', facet: true, value: (item) => item.kind},
      {key: 'component', label: 'Component', facet: true, value: (item) => item.component ?? ''}, {
        key: 'layer',
        label: 'Layer',
        numeric: true,
        value: (item) => item.layer,
        text: (item) => absent(item.layer) ? '' : String(item.layer)
      },
      {key: 'dtype', label: 'Stored as', facet: true, value: storedAs}, {
        key: 'shape',
        label: 'Shape',
        numeric: true,
        value: elementsOf,
        text: (item) => shapeText(item.shape)
      },
      {key: 'file', label: 'File', facet: true, class: 'path', value: path}, {
        key: 'offset',
        label: 'Offset',
        numeric: true,
        value: (item) => item.offset,
        text: (item) => count(item.offset)
      },
      bytesColumn(total), shareColumn(total)
    ]
  });
}

function summaryOf(rows, total) {
  const sum = rows.reduce((all, row) => all + row.bytes, 0);
  return `${bytes(sum)}, ${percent(sum, total)}`;
}

function findingsSection(audit) {
  const findings = audit.findings ?? [];
  if (findings.length === 0) return null;
  const names = (finding) => {
    const list = finding.items ?? [];
    if (list.length === 0) return null;
    const rest = finding.count - list.length;
    return el(
        'details', {}, el('summary', {}, plural(finding.count, 'item')),
        el('ul', {class: 'names'}, list.map((name) => el('li', {}, plain(name))),
           rest > 0 ? el('li', {}, `and ${count(rest)} more`) : null));
  };
  const table = new Table({
    id: 'findings',
    label: 'Findings',
    rows: findings,
    sort: '-bytes',
    search: false,
    columns: [
      {
        key: 'severity',
        label: 'Severity',
        facet: true,
        value: (row) => row.severity,
        cell: (row) => el('span', {class: `tag ${row.severity}`}, row.severity)
      },
      {key: 'id', label: 'Finding', value: (row) => row.id}, {
        key: 'message',
        label: 'What',
        class: 'wide',
        value: (row) => row.message,
        cell: (row) =>
            [el('span', {}, plain(row.message)),
             row.remedy ? el('span', {class: 'under'}, plain(row.remedy)) : null, names(row)]
      },
      {
        key: 'bytes',
        label: 'Could be saved',
        numeric: true,
        value: (row) => row.bytes,
        text: (row) => row.bytes > 0 ? count(row.bytes) : ''
      },
      shareColumn(audit.totals.bytes)
    ]
  });
  return section('findings', 'Findings', 'What could be smaller, and how.', table.node);
}

const limitText = (limit, value) => limit.unit === 'bytes' || limit.unit === 'byte' ? count(value) :
    limit.unit === 'percent' || limit.unit === '%' ? `${number(value)} %` :
                                                     `${number(value)} ${limit.unit ?? ''}`;

function budgetSection(audit) {
  if (!audit.budget) return null;
  const {passed, limits} = audit.budget;
  const bad = limits.filter((limit) => !limit.passed).length;
  const rows = limits.map(
      (limit) =>
          [plain(limit.name), plain(limit.of), limitText(limit, limit.size),
           limitText(limit, limit.limit), limit.over > 0 ? `+${limitText(limit, limit.over)}` : '',
           verdict(limit.passed, limit.passed ? 'within' : 'exceeded')]);
  return section(
      'budget', 'Budget', null,
      el('p', {},
         verdict(
             passed,
             passed ? `All ${plural(limits.length, 'limit')} hold.` :
                      `${count(bad)} of ${plural(limits.length, 'limit')} exceeded.`)),
      simpleTable('Budget', ['Limit', 'Of', '#Size', '#Allowed', '#Over', 'Verdict'], rows));
}

// Shows the steps from the source to the bundle.
function accountSection(audit) {
  const {account} = audit;
  if (!account) return null;
  const row = (name, size, isStep) =>
      [name, isStep ? signedCount(size) : count(size), percent(size, account.source_bytes)];
  return section(
      'account', 'From the checkpoint to the bundle', null,
      simpleTable('From the checkpoint to the bundle', ['Step', '#Bytes', '#Of the source'], [
        row('Checkpoint', account.source_bytes, false),
        ...account.steps.map((step) => row(plain(step.name), step.bytes, true)),
        row('Bundle', account.bundle_bytes, false)
      ]));
}

// Returns the path of a file that is named by its index in the list or by its path.
const fileName = (audit, file) =>
    plain(typeof file === 'number' ? audit.files[file]?.path ?? '' : file ?? '');

function memorySection(audit) {
  const {memory} = audit;
  if (!memory) return null;
  const methods = (memory.methods ?? [])
                      .map(
                          (method) =>
                              [plain(method.method), fileName(audit, method.file),
                               count(method.activation_bytes), count(method.state_bytes)]);
  const buffers = memory.buffers ?? [];
  const table = buffers.length === 0 ? null : new Table({
    id: 'buffers',
    label: 'State',
    rows: buffers,
    first: 10,
    sort: '-bytes',
    search: buffers.length > 15,
    columns: [
      {
        key: 'name',
        label: 'Buffer',
        class: 'name',
        value: (row) => row.name,
        text: (row) => plain(row.name)
      },
      {key: 'dtype', label: 'Type', value: (row) => row.dtype}, {
        key: 'shape',
        label: 'Shape',
        numeric: true,
        value: (row) => row.bytes,
        text: (row) => shapeText(row.shape)
      },
      {
        key: 'stored',
        label: 'In the file',
        value: (row) => row.stored === true ? 'yes' :
            row.stored > 0                  ? count(row.stored) :
                                              'no'
      },
      bytesColumn(memory.state_bytes)
    ]
  });
  return section(
      'memory', 'Memory at run time',
      'What the programs plan beside the weights. It is not in the files.',
      el('dl', {class: 'tiles'},
         tile('Activations', bytes(memory.activation_bytes), count(memory.activation_bytes)),
         tile('State', bytes(memory.state_bytes), count(memory.state_bytes))),
      methods.length > 0 ?
          simpleTable('Methods', ['Method', 'File', '#Activations', '#State'], methods) :
          null,
      table?.node);
}
