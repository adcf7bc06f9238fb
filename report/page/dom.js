// Builds the visible page. Names come from untrusted files: they enter the page as text nodes only,
// and nothing in these scripts parses markup.

const svgNames = document.getElementById('svg').namespaceURI;

// Sets attributes. Functions become listeners, true becomes an empty attribute, and undefined
// values are left out.
function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function')
      node.addEventListener(name, value);
    else
      node.setAttribute(name, value === true ? '' : value);
  }
  const isThere = (child) => child !== undefined && child !== null && child !== false;
  node.append(...children.flat(Infinity).filter(isThere));
  return node;
}

function el(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

function svgEl(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(svgNames, tag), attributes, children);
}

// Makes a section of the page with a heading and an address of its own.
function section(id, heading, lead, ...children) {
  return el(
      'section', {id, 'aria-labelledby': `${id}-heading`},
      el('div', {class: 'section-head'}, el('h2', {id: `${id}-heading`}, heading),
         lead ? el('p', {class: 'lead'}, lead) : null),
      children);
}

// Makes a tile: one number with its name and, below it, its meaning.
function tile(label, value, note, tone) {
  return el(
      'div', {class: tone ? `tile ${tone}` : 'tile'}, el('dt', {}, label), el('dd', {}, value),
      note ? el('dd', {class: 'note-line'}, note) : null);
}

// Makes a row of buttons of which one is pressed. `options` are pairs of a key and a label.
function choice(label, options, chosen, choose) {
  const buttons = new Map(options.map(
      ([key, text]) => [key, el('button', {type: 'button', click: () => choose(key)}, text)]));
  const show = (key) => buttons.forEach(
      (button, other) => button.setAttribute('aria-pressed', String(key === other)));
  show(chosen);
  const node =
      el('div', {class: 'choice', role: 'group', 'aria-label': label},
         el('span', {class: 'choice-label'}, label), [...buttons.values()]);
  return {node, show};
}

// Makes a verdict in words with a mark, so that its meaning does not depend on a colour.
function verdict(good, text) {
  const mark = good === null ? '–' : good ? '✓' : '✕';
  const tone = good === null ? 'neutral' : good ? 'good' : 'bad';
  return el(
      'span', {class: `verdict ${tone}`}, el('span', {class: 'mark', 'aria-hidden': 'true'}, mark),
      text);
}

// The box that follows the pointer. `rows` are pairs of a name and a value; the title is bold.
const tip = {
  node: el('div', {class: 'tip', role: 'tooltip', hidden: true}),
  show(x, y, title, rows) {
    this.node.replaceChildren(
        el('strong', {}, title),
        el('dl', {}, rows.map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])));
    this.node.hidden = false;
    const {width, height} = this.node.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? x - 12 - width : x + 16;
    const top = y + 16 + height > innerHeight ? y - 12 - height : y + 16;
    this.node.style.left = `${Math.max(4, left)}px`;
    this.node.style.top = `${Math.max(4, top)}px`;
  },
  hide() { this.node.hidden = true; },
};

// Calls `act` when no further call has come for some milliseconds.
function afterPause(act, milliseconds = 120) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), milliseconds);
  };
}
