// Tables that can be sorted and filtered. Only the first rows are in the document, because the
// layout of ten thousand rows takes longer than computing them.

const fewRows = 50;

// A column has key, label and value(row). It may have text(row) for the shown text, cell(row) for a
// node, numeric, facet (a list of its values to choose from), share(row) for a bar, hint, and
// unseen (searched but not shown).
const textOf = (column, row) => column.text ? column.text(row) : String(column.value(row) ?? '');

function compare(a, b) {
  if (absent(a) || a === '') return absent(b) || b === '' ? 0 : 1;
  if (absent(b) || b === '') return -1;
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a).localeCompare(String(b), 'en', {numeric: true});
}

// Splits `find` into words. A row matches if it has all words, in any column and case.
function wordsOf(find) { return find.toLowerCase().split(/\s+/).filter((word) => word !== ''); }
const hasWords = (text, words) => words.every((word) => text.includes(word));

class Table {
  // id: name of the table's state in the address. rows: any values. sort: key of a column, with '-'
  // before it for descending order. search: false if the caller filters with find(). summary(rows):
  // text after the number of rows. first: number of rows shown at first.
  constructor(
      {id, label, columns, rows, sort = '', search = true, summary, empty, first = fewRows}) {
    Object.assign(this, {id, label, rows, summary, first, all: columns});
    this.columns = columns.filter((column) => !column.unseen);
    this.empty = empty ?? 'No row matches.';
    this.initialSort = sort;
    this.searched = search;
    this.texts = new Map();
    this.build();
    this.readState();
    state.onMove(() => this.readState());
  }

  build() {
    this.heads = this.columns.map((column) => this.head(column));
    this.body = el('tbody');
    this.status = el('p', {class: 'count', role: 'status'});
    this.rest = el('div', {class: 'rest'});
    this.node =
        el('div', {class: 'table-block'},
           el('div', {class: 'toolbar'}, this.searched ? this.searchBox() : null, this.facets(),
              this.status),
           el('div', {class: 'scroller', tabindex: '0', role: 'region', 'aria-label': `Table: ${this.label}`},
              el('table', {}, el('caption', {class: 'unseen'}, this.label),
                 el('thead', {}, el('tr', {}, this.heads)), this.body)),
           this.rest);
  }

  head(column) {
    const button =
        el('button', {type: 'button', title: column.hint, click: () => this.turn(column)},
           column.label, el('span', {class: 'arrow', 'aria-hidden': 'true'}));
    return el('th', {scope: 'col', class: column.numeric ? 'number' : null}, button);
  }

  searchBox() {
    const take = afterPause((text) => {
      state.set(`${this.id}.find`, text);
      this.find(text);
    });
    this.box = el('input', {
      type: 'search',
      placeholder: 'Filter',
      spellcheck: 'false',
      'aria-label': `Filter: ${this.label}`,
      input: () => take(this.box.value)
    });
    return this.box;
  }

  facets() {
    this.selects = new Map();
    for (const column of this.columns.filter((c) => c.facet)) {
      const found = [...new Set(this.rows.map((row) => textOf(column, row)))].sort(compare);
      if (found.length < 2) continue;
      const select =
          el('select', {
            'aria-label': `${column.label}: ${this.label}`,
            change: () => {
              state.set(`${this.id}.${column.key}`, select.value);
              this.refresh();
            }
          },
             el('option', {value: ''}, `${column.label}: all`),
             found.map((text) => el('option', {value: text}, text === '' ? '(none)' : text)));
      this.selects.set(column, select);
    }
    return [...this.selects.values()];
  }

  readState() {
    this.sort = state.get(`${this.id}.sort`, this.initialSort);
    for (const [column, select] of this.selects)
      select.value = state.get(`${this.id}.${column.key}`);
    if (this.box) {
      this.box.value = state.get(`${this.id}.find`);
      this.words = wordsOf(this.box.value);
    }
    this.limit = this.first;
    this.refresh();
  }

  find(text) {
    this.words = wordsOf(text);
    this.limit = this.first;
    this.refresh();
  }

  turn(column) {
    const [up, down] = [column.key, `-${column.key}`];
    // The first click on a numeric column sorts the largest values first.
    const first = column.numeric ? down : up;
    this.sort = this.sort === first ? (first === up ? down : up) : first;
    state.set(`${this.id}.sort`, this.sort);
    this.refresh();
  }

  textOfRow(row) {
    let text = this.texts.get(row);
    if (text === undefined) {
      text = this.all.map((column) => textOf(column, row)).join('\n').toLowerCase();
      this.texts.set(row, text);
    }
    return text;
  }

  matching() {
    const chosen = [...this.selects].filter(([, select]) => select.value !== '');
    const words = this.words ?? [];
    if (chosen.length === 0 && words.length === 0) return [...this.rows];
    return this.rows.filter(
        (row) => chosen.every(([column, select]) => textOf(column, row) === select.value) &&
            hasWords(this.textOfRow(row), words));
  }

  sorted(rows) {
    const key = this.sort.replace(/^-/, '');
    const column = this.columns.find((c) => c.key === key);
    if (!column) return rows;
    const direction = this.sort.startsWith('-') ? -1 : 1;
    const keyed = rows.map((row) => [column.value(row), row]);
    keyed.sort(([a], [b]) => absent(a) || absent(b) ? compare(a, b) : direction * compare(a, b));
    return keyed.map(([, row]) => row);
  }

  refresh() {
    const rows = this.sorted(this.matching());
    this.columns.forEach((column, i) => {
      const order = this.sort === column.key ? 'ascending' :
          this.sort === `-${column.key}` ? 'descending' :
                                           null;
      if (order)
        this.heads[i].setAttribute('aria-sort', order);
      else
        this.heads[i].removeAttribute('aria-sort');
    });
    const shown = rows.slice(0, this.limit);
    this.body.replaceChildren(...shown.map((row) => this.row(row)));
    if (rows.length === 0) {
      this.body.append(
          el('tr', {}, el('td', {class: 'empty', colspan: this.columns.length}, this.empty)));
    }
    this.node.dataset.rows = rows.length;
    this.tell(rows, shown.length);
  }

  tell(rows, shown) {
    const all = this.rows.length;
    const number =
        rows.length === all ? plural(all, 'row') : `${count(rows.length)} of ${plural(all, 'row')}`;
    const summary = this.summary && rows.length > 0 ? ` · ${this.summary(rows)}` : '';
    this.status.textContent = number + summary;
    this.rest.replaceChildren();
    if (shown === rows.length) return;
    const add = (label, limit) =>
        el('button', {
          type: 'button',
          click: () => {
            this.limit = limit;
            this.refresh();
          }
        },
           label);
    this.rest.append(
        `The first ${count(shown)} are shown. `,
        add(`Show ${count(Math.min(500, rows.length - shown))} more`, shown + 500), ' ',
        add(`Show all ${count(rows.length)}`, rows.length));
  }

  row(row) {
    const cells = this.columns.map((column, i) => {
      const content = column.cell ? column.cell(row) : textOf(column, row);
      const attributes = {
        class: [column.numeric ? 'number' : '', column.class ?? ''].join(' ').trim()
      };
      const cell = i === 0 ? el('th', {scope: 'row', ...attributes}, content) :
                             el('td', attributes, content);
      if (column.share) cell.append(shareBar(column.share(row)));
      return cell;
    });
    return el('tr', {}, cells);
  }
}

// Draws a bar below a number: its share of the total.
function shareBar(share) {
  const bar = el('span', {class: 'share', 'aria-hidden': 'true'}, el('span'));
  bar.firstChild.style.width = `${(100 * Math.min(1, Math.max(0, share || 0))).toFixed(2)}%`;
  return bar;
}

// Makes a small table that cannot be sorted. `rows` are lists of texts or nodes.
function simpleTable(label, heads, rows) {
  const isNumber = heads.map((head) => head.startsWith('#'));
  return el(
      'div', {class: 'scroller', tabindex: '0', role: 'region', 'aria-label': `Table: ${label}`},
      el('table', {}, el('caption', {class: 'unseen'}, label),
         el('thead', {},
            el('tr', {},
               heads.map(
                   (head, i) =>
                       el('th', {scope: 'col', class: isNumber[i] ? 'number' : null},
                          head.replace(/^#/, ''))))),
         el('tbody', {},
            rows.map(
                (cells) => el(
                    'tr', {},
                    cells.map(
                        (cell, i) => el(
                            i === 0 ? 'th' : 'td',
                            {scope: i === 0 ? 'row' : null, class: isNumber[i] ? 'number' : null},
                            cell)))))));
}
