// The page of an audit shows which parts of a checkpoint or a bundle take how many bytes.
// docs/auditing.md describes the document.

// Marks items whose bytes occur more than once.
function markDuplicates(audit) {
  const named = new Set((audit.findings ?? [])
                            .filter((finding) => finding.id.startsWith('duplicate'))
                            .flatMap((finding) => finding.items ?? []));
  const seen = new Map();
  for (const item of audit.items) {
    if (named.has(item.name)) item.duplicate = true;
    if (!item.sha256 || item.part > 0) continue;
    const first = seen.get(item.sha256);
    if (first)
      item.duplicate = first.duplicate = true;
    else
      seen.set(item.sha256, item);
  }
}

const colourKeys = {
  component: ['Component', (item) => item.component ?? item.kind],
  kind: ['Kind', (item) => item.kind],
  dtype: ['Stored as', (item) => storedAs(item) || '(no tensor)'],
};

// Returns keys by falling size, so that large kinds get colours of their own.
function keysBySize(items, keyOf) {
  const sums = new Map();
  for (const item of items) sums.set(keyOf(item), (sums.get(keyOf(item)) ?? 0) + item.bytes);
  return [...sums].sort((a, b) => b[1] - a[1]).map(([key]) => key);
}

// Colours are equal in every size mode. Kinds that are in files get the first colours. Kinds
// that exist only at run time share two further colours.
class Colours {
  constructor(items, planned) { Object.assign(this, {items, planned}); }

  choose(by) {
    this.keyOf = colourKeys[by][1];
    this.keys = keysBySize(this.items, this.keyOf);
    const more = keysBySize(this.planned, this.keyOf).filter((key) => !this.keys.includes(key));
    this.keys.splice(colourCount - 3, 0, ...more);
    this.scale = colourScale(this.keys);
  }

  look(node, theme, painter) {
    const leaf = node.leaf ?? firstLeaf(node);
    const index = this.scale(this.keyOf(leaf));
    const fill = theme.fills[index];
    const hatch = leaf.duplicate ? 'diagonal' : leaf.tied?.length > 0 ? 'upright' : null;
    // A leaf has one pattern at most. On paper the mark of a duplicate replaces the pattern of its
    // kind.
    return {fill, hatch: hatch ?? (theme.paper ? paperPatterns[index] : null), painter};
  }

  // Returns the legend of what is in the tree.
  legend(root) {
    const leaves = leavesOf(root);
    const here = new Set(leaves.map((leaf) => this.keyOf(leaf)));
    const entry = (className, text) =>
        el('span', {class: 'key'},
           el('span', {class: `swatch ${className}`, 'aria-hidden': 'true'}), text);
    const own = this.keys.slice(0, colourCount - 1)
                    .map((key, i) => here.has(key) && entry(`c${i}`, plain(key)));
    if (this.keys.slice(colourCount - 1).some((key) => here.has(key)))
      own.push(entry(`c${colourCount - 1}`, 'others'));
    if (leaves.some((leaf) => leaf.duplicate)) own.push(entry('grey diagonal', 'duplicate bytes'));
    if (leaves.some((leaf) => leaf.tied?.length > 0))
      own.push(entry('grey upright', 'tied: one range, several names'));
    return el('div', {class: 'keys'}, own);
  }
}

function leavesOf(node) { return node.children ? node.children.flatMap(leavesOf) : [node.leaf]; }

function firstLeaf(node) {
  while (node.children) node = node.children[0];
  return node.leaf;
}

function itemDetails(audit) {
  return (node, root) => {
    const size = [
      [node.unit === 'elements' ? 'elements' : 'bytes', count(node.size)],
      ['of all', percent(node.size, root.size)]
    ];
    if (!node.leaf)
      return {title: node.label, rows: [...size, ['parts', count(node.children.length)]]};
    const item = node.leaf;
    const rows = [
      ['kind', item.kind], ['component', item.component], ['layer', item.layer],
      ['shape', shapeText(item.shape)], ['stored as', storedAs(item)],
      ['file', plain(audit.files[item.file]?.path ?? '')], ['offset', count(item.offset)],
      ['used by', item.use && plain(item.use)],
      ['rule', absent(item.rule) ? '' : plain(audit.rules?.[item.rule] ?? '')],
      ['also', item.tied?.map(plain).join(', ')], ['marks', marksOf(item).join(', ')]
    ];
    return {
      title: node.title || node.label,
      rows: [...size, ...rows.filter(([, value]) => !absent(value) && value !== '')]
    };
  };
}

function mapSection(audit) {
  const trees = auditTrees(audit);
  const modes = {file: 'Bytes in files', elements: 'Elements', memory: 'Memory at run time'};
  const known = (key, options, otherwise) => key in options ? key : otherwise;
  const mode = () => trees.has(state.get('size')) ? state.get('size') : 'file';
  const colourBy = () => known(state.get('colour'), colourKeys, 'component');
  const colours = new Colours(
      audit.items, trees.has('memory') ? memoryLeaves(audit.memory).map((row) => row.leaf) : []);
  colours.choose(colourBy());
  const map = new Treemap({
    id: '',
    label: 'Map of sizes',
    roots: trees,
    mode: mode(),
    look: (node, theme, painter) => colours.look(node, theme, painter),
    details: itemDetails(audit),
    legend: (root) => colours.legend(root)
  });
  const colourPicker = choice(
      'Colour', Object.entries(colourKeys).map(([key, [label]]) => [key, label]), colourBy(),
      (key) => {
        state.set('colour', key);
        recolour();
      });
  const recolour = () => {
    colourPicker.show(colourBy());
    colours.choose(colourBy());
    map.refresh();
  };
  const sizePicker =
      choice('Area', Object.entries(modes).filter(([key]) => trees.has(key)), mode(), (key) => {
        state.set('size', key);
        resize();
      });
  const resize = () => {
    sizePicker.show(mode());
    map.setMode(mode());
  };
  state.onMove(() => {
    recolour();
    resize();
  });
  const search = new Search(audit, map);
  const node = section(
      'map', 'Map', null,
      el('div', {class: 'toolbar'}, search.box('Find in the map'), colourPicker.node,
         trees.size > 1 ? sizePicker.node : null, search.status),
      map.node);
  return {node, map, search};
}

// One search serves the map and the table of items. Every word must occur in the texts of the item:
// name, kind, component, file and others.
class Search {
  constructor(audit, map) {
    Object.assign(this, {audit, map, boxes: []});
    this.status = el('p', {class: 'count', role: 'status'});
    this.shown = '';
    this.texts = lazily(() => audit.items.map((item) => this.textOf(item)));
    state.onMove(() => this.show());
  }

  textOf(item) {
    const words = [
      plain(item.name || item.kind), ...marksOf(item), ...(item.tied ?? []), item.kind,
      item.component ?? '', storedAs(item), this.audit.files[item.file]?.path ?? '',
      layerText(item.layer)
    ];
    return words.join('\n').toLowerCase();
  }

  box(label) {
    const take = afterPause((text) => {
      state.set('find', text);
      this.show();
    });
    const box = el('input', {
      type: 'search',
      placeholder: label,
      'aria-label': label,
      spellcheck: 'false',
      input: () => take(box.value)
    });
    this.boxes.push(box);
    return box;
  }

  show() {
    const text = state.get('find');
    for (const box of this.boxes)
      if (box.value !== text) box.value = text;
    if (text === this.shown) return;
    this.shown = text;
    this.table?.find(text);
    const words = wordsOf(text);
    if (words.length === 0) {
      this.status.textContent = '';
      this.map.setFound(null);
      return;
    }
    const texts = this.texts();
    const found = this.audit.items.filter((item, i) => hasWords(texts[i], words));
    this.status.textContent = `${plural(found.length, 'item')} found` +
        (found.length > 0 ? `, ${summaryOf(found, this.audit.totals.bytes)}` : '');
    this.map.setFound(new Set(found));
  }
}

// Shows one item in the map: opens its level and draws a frame around its box.
function showInMap(map, item) {
  const search = (node) => node.leaf === item ?
      node :
      node.children?.reduce((hit, child) => hit ?? search(child), null) ?? null;
  const node = search(map.root);
  if (!node) return;
  map.zoomTo(node.parent.path);
  const box = map.boxes.find((other) => other.node.leaf === item);
  map.canvas.focus({preventScroll: true});
  map.node.scrollIntoView({block: 'center'});
  if (box) map.choose(box);
}

function auditTiles(audit) {
  const {totals, findings = [], budget, diff, memory} = audit;
  const warnings = findings.filter((finding) => finding.severity === 'warning').length;
  const weights = audit.items.filter(isTensor).reduce((sum, item) => sum + item.bytes, 0);
  return el(
      'dl', {class: 'tiles'},
      tile(
          'On disk', bytes(totals.bytes),
          `${count(totals.bytes)} bytes, ${plural(totals.files, 'file')}`),
      budget ? tile(
                   'Budget', budget.passed ? '✓ within' : '✕ exceeded',
                   plural(budget.limits.length, 'limit'), budget.passed ? 'good' : 'bad') :
               null,
      diff ? tile(
                 'Against the old', signedBytes(diff.delta) || '0 B',
                 signed(diff.delta, percent(diff.delta, diff.old.bytes))) :
             null,
      totals.elements > 0 ? tile(
                                'Elements', count(totals.elements),
                                `${plural(totals.tensors, 'tensor')}, ` +
                                    `${fixed(8 * weights / totals.elements)} bits per element`) :
                            null,
      memory ? tile(
                   'At run time', bytes((memory.activation_bytes ?? 0) + (memory.state_bytes ?? 0)),
                   'activations and state, beside the weights') :
               null,
      tile(
          'Findings', count(findings.length),
          warnings > 0 ? plural(warnings, 'warning') : 'no warning', warnings > 0 ? 'warn' : null),
      tile(
          'Not accounted for', bytes(totals.unaccounted ?? 0),
          totals.unaccounted ? 'bytes that no reader explains' : 'every byte has a name',
          totals.unaccounted ? 'bad' : null));
}

function buildPage(audit) {
  markDuplicates(audit);
  const {node, map, search} = mapSection(audit);
  search.table = itemsTable(audit, (item) => showInMap(map, item));
  const items = section(
      'items', 'Items', 'Every range of every file.',
      el('div', {class: 'toolbar'}, search.box('Find in items')), search.table.node);
  const type =
      [audit.target.type, audit.target.model_type].filter((text) => text).map(plain).join(' · ');
  return {
    name: plain(audit.target.name),
    what: 'Size audit',
    facts: type,
    tiles: auditTiles(audit),
    sections: [
      budgetSection(audit), diffSection(audit), node, findingsSection(audit), viewsSection(audit),
      accountSection(audit), memorySection(audit), items
    ],
    // Runs last, because the search reads the address when all parts are in place.
    then: () => search.show(),
  };
}
