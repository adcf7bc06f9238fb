// Builds trees of an audit's items for the treemap: file > component > layer > tensor. There is one
// tree for each size mode: bytes in files, elements, and memory at run time.

// Returns the elements of an item. The second and later parts of a tensor have no shape and count
// 0.
const elementsOf = (item) => Array.isArray(item.shape) && isTensor(item) ?
    item.shape.reduce((product, n) => product * n, 1) :
    0;
const isTensor = (item) => ['weight', 'constant', 'buffer_init'].includes(item.kind);

const storedAs = (item) => item.encoding || item.dtype || '';
const layerText = (layer) => absent(layer) ? '' : `layer ${layer}`;

// Returns the part of a name that the groups around it do not state.
function shortName(item) {
  const name = plain(item.name || item.kind);
  const inLayer =
      absent(item.layer) ? null : name.match(/(?:^|\.)(?:layers?|blocks?|blk|h)\.\d+\.(.+)$/);
  return inLayer ? inLayer[1] : name;
}

function group(parent, label) {
  const path = parent.path === '' ? label : `${parent.path}/${label}`;
  const node =
      {label, path, parent, children: [], size: 0, unit: parent.unit, depth: parent.depth + 1};
  parent.children.push(node);
  return node;
}

const newRoot = (label, unit) => ({label, path: '', children: [], size: 0, unit, depth: 0});

function childNamed(node, index, label) {
  let children = index.get(node);
  if (!children) index.set(node, children = new Map());
  if (!children.has(label)) children.set(label, group(node, label));
  return children.get(label);
}

function addLeaf(parent, label, leaf, size, title) {
  parent.children.push(
      {label, path: `${parent.path}/${label}`, parent, leaf, size, title, unit: parent.unit});
}

// Makes a leaf that replaces the group whose only child it is. The leaf keeps the name of the group
// if that says more, as when each of 28 tensors of a component is in another layer.
function alone(group, leaf) {
  const isLayer = group.label.startsWith('layer ');
  return {
    ...leaf,
    parent: group.parent,
    label: isLayer ? `${group.label}: ${leaf.label}` : leaf.label,
    short: isLayer ? [group.label, group.label.slice(6)] : undefined
  };
}

// Sums sizes, sorts by falling size, and replaces groups of one leaf by the leaf.
function settle(node) {
  if (!node.children) return node.size;
  node.children.forEach(settle);
  node.children = node.children.map(
      (child) => child.children?.length === 1 && child.children[0].leaf ?
          alone(child, child.children[0]) :
          child);
  node.children.sort((a, b) => b.size - a.size);
  node.size = node.children.reduce((sum, child) => sum + child.size, 0);
  return node.size;
}

// Each leaf is {file, component, layer, label, title, size, leaf}.
function treeOf(label, unit, leaves) {
  const root = newRoot(label, unit);
  const index = new Map();
  for (const leaf of leaves) {
    if (!(leaf.size > 0)) continue;
    let place = childNamed(root, index, leaf.file);
    if (leaf.component) place = childNamed(place, index, leaf.component);
    if (!absent(leaf.layer)) place = childNamed(place, index, layerText(leaf.layer));
    addLeaf(place, leaf.label, leaf.leaf, leaf.size, leaf.title);
  }
  settle(root);
  // If there is only one file, its parts are the first level.
  while (root.children.length === 1 && root.children[0].children) {
    root.children = root.children[0].children;
    root.children.forEach((child) => {
      child.parent = root;
    });
  }
  return root;
}

function itemLeaf(audit, item, size) {
  const file = plain(audit.files[item.file]?.path ?? '');
  return {
    file,
    component: item.component ?? item.kind,
    layer: item.layer,
    label: shortName(item),
    title: plain(item.name ?? ''),
    size,
    leaf: item
  };
}

// Returns leaves for the memory that programs plan at run time, in the form of items.
function memoryLeaves(memory) {
  const leaves = [];
  const add = (top, name, size, more) => leaves.push({
    file: top,
    label: plain(name),
    title: plain(name),
    size,
    leaf: {kind: top, name, bytes: size, component: top, ...more}
  });
  const part = (top, rows, total, name) => {
    const sum = rows.reduce((all, row) => all + row.bytes, 0);
    rows.forEach((row) => add(top, row.name, row.bytes, row));
    // Rows may share memory. They are shown only if they add up to the total.
    if (sum > total) leaves.splice(leaves.length - rows.length, rows.length);
    if (sum > total)
      add(top, name, total, {});
    else if (sum < total)
      add(top, name, total - sum, {});
  };
  const methods = (memory.methods ?? []).map((m) => ({name: m.method, bytes: m.activation_bytes}));
  part('state', memory.buffers ?? [], memory.state_bytes ?? 0, 'other state');
  part('activations', methods, memory.activation_bytes ?? 0, 'shared by all methods');
  return leaves;
}

// Returns a function that calls `make` once, when the value is first needed.
function lazily(make) {
  let made;
  return () => made ??= make();
}

// Returns size mode -> function that makes the tree, for the modes that this audit has numbers for.
// Trees are made only when they are shown.
function auditTrees(audit) {
  const name = plain(audit.target.name);
  const leaves = (size) => audit.items.map((item) => itemLeaf(audit, item, size(item)));
  const trees = new Map();
  const add = (mode, unit, make) => trees.set(mode, lazily(() => treeOf(name, unit, make())));
  add('file', 'bytes', () => leaves((item) => item.bytes));
  if (audit.totals.elements > 0) add('elements', 'elements', () => leaves(elementsOf));
  if (audit.memory) {
    const kept = (item) => isTensor(item) ? item.bytes : 0;
    add('memory', 'bytes', () => [...leaves(kept), ...memoryLeaves(audit.memory)]);
  }
  return trees;
}

// Returns a tree of the result of --diff: component > layer > item. `measure` is new, old or
// change.
function diffTree(diff, items, measure) {
  const size = {
    new: (row) => row.new,
    old: (row) => row.old,
    change: (row) => Math.abs(row.delta)
  }[measure];
  const leaves = diff.rows.map((row) => {
    const item = absent(row.item) ? {} : items[row.item];
    const component = row.component || item.component || row.kind || 'other';
    return {
      file: component,
      layer: item.layer,
      label: shortName({name: row.name, layer: item.layer, kind: row.kind}),
      title: plain(row.name),
      size: size(row) ?? 0,
      leaf: row
    };
  });
  if (measure !== 'change' && diff.equal?.bytes > 0) {
    leaves.push({
      file: 'equal in both',
      label: `equal in both: ${plural(diff.equal.count, 'item')}`,
      title: 'equal in both',
      size: diff.equal.bytes,
      leaf: {change: 'equal', delta: 0, new: diff.equal.bytes, old: diff.equal.bytes}
    });
  }
  return treeOf('changes', 'bytes', leaves);
}
