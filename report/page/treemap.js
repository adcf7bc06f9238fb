// The treemap as a part of the page. It zooms by click and by keys, follows the pointer, marks
// results of a search, and lists the present level in a table beside it. The table has the contents
// of the map for readers who cannot see it.

const levelRows = 300;

class Treemap {
  // id: name of the map's state in the address. roots: size mode -> function that makes a tree.
  // look(node, theme): see Painter. details(node): {title, rows} for the pointer. legend(): node.
  constructor({id, label, roots, mode, look, details, legend}) {
    Object.assign(this, {id, label, roots, look, details, legend});
    this.root = roots.get(mode)();
    this.found = null;
    this.build();
    this.zoomTo(state.get(`${id}zoom`), false);
    state.onMove(() => this.zoomTo(state.get(`${id}zoom`), false));
    new ResizeObserver(() => this.resize()).observe(this.frame);
    dark.addEventListener('change', () => this.draw());
    // While a page is laid out for paper, every drawing is made for paper.
    const print = (printing) => {
      this.printing = printing;
      this.draw();
    };
    addEventListener('beforeprint', () => print(true));
    addEventListener('afterprint', () => print(false));
    matchMedia('print').addEventListener('change', (event) => print(event.matches));
  }

  build() {
    this.canvas = el('canvas', {
      tabindex: '0',
      role: 'img',
      'aria-label':
          `${this.label}. The table beside it has the same contents. Arrow keys choose, ` +
          'Enter zooms in, Escape zooms out.',
      click: (event) => this.click(event),
      keydown: (event) => this.key(event),
      pointermove: (event) => this.point(event),
      pointerleave: () => this.leave(),
      blur: () => {
        this.chosen = null;
        this.paintOver();
        tip.hide();
      }
    });
    this.crumbs = el('nav', {class: 'crumbs', 'aria-label': `Place in: ${this.label}`});
    this.spoken = el('p', {class: 'unseen', role: 'status'});
    this.frame = el('div', {class: 'map-frame'}, this.canvas);
    this.level = el('tbody');
    const list =
        el('div', {
          class: 'level scroller',
          tabindex: '0',
          role: 'region',
          'aria-label': `On this level: ${this.label}`
        },
           el('table', {}, el('caption', {class: 'unseen'}, `On this level: ${this.label}`),
              el('thead', {},
                 el('tr', {}, el('th', {scope: 'col'}, 'On this level'),
                    el('th', {scope: 'col', class: 'number'}, 'Size'),
                    el('th', {scope: 'col', class: 'number'}, 'Share'))),
              this.level));
    this.legendPlace = el('div', {class: 'legend'});
    this.node =
        el('div', {class: 'map'}, this.crumbs, el('div', {class: 'map-row'}, this.frame, list),
           this.legendPlace, this.spoken);
  }

  setMode(mode) {
    const path = this.at?.path ?? '';
    this.root = this.roots.get(mode)();
    this.zoomTo(path, false);
  }

  refresh() {
    this.legendPlace.replaceChildren(this.legend(this.root));
    this.draw();
  }

  // Sets the leaves that a search found; null: there is no search.
  setFound(found) {
    this.found = found;
    this.draw();
  }

  // Returns the node at a path, or the last existing node on the path.
  nodeAt(path) {
    let node = this.root;
    while (node.path !== path) {
      const next =
          node.children?.find((child) => path === child.path || path.startsWith(`${child.path}/`));
      if (!next || !next.children) break;
      node = next;
    }
    return node;
  }

  zoomTo(path, step = true) {
    const before = this.at;
    const picture = step ? this.picture : null;
    const entered = this.boxOf(this.nodeAt(path));
    this.at = this.nodeAt(path);
    this.chosen = null;
    if (step) state.set(`${this.id}zoom`, this.at.path, true);
    tip.hide();
    this.crumb();
    this.fillLevel();
    this.node.dataset.zoom = this.at.path;
    this.refresh();
    if (step) this.fly(picture, entered ?? this.boxOf(before), Boolean(entered));
    this.spoken.textContent = `${this.at.label}: ${bytesIn(this.at)}, ` +
        `${plural(this.at.children?.length ?? 0, 'part')}`;
  }

  boxOf(node) { return this.boxes?.find((box) => box.node === node); }

  lineOf(node) {
    const line = [];
    for (let up = node; up; up = up.parent) line.unshift(up);
    return line;
  }

  crumb() {
    const line = this.lineOf(this.at);
    const items = line.map(
        (node, i) => el(
            'li', {},
            i + 1 === line.length ?
                el('span', {'aria-current': 'true'}, node.label) :
                el('button', {type: 'button', click: () => this.zoomTo(node.path)}, node.label)));
    this.crumbs.replaceChildren(
        el('ol', {}, items),
        el('span', {class: 'crumb-size'},
           `${bytesIn(this.at)} · ${percent(this.at.size, this.root.size)} of all`));
  }

  fillLevel() {
    const children = (this.at.children ?? []).filter((child) => child.size > 0);
    const rows = children.slice(0, levelRows).map((child) => {
      const name = child.children ?
          el('button', {type: 'button', class: 'link', click: () => this.zoomTo(child.path)},
             child.label) :
          el('span', {}, child.label);
      return el(
          'tr', {}, el('th', {scope: 'row', title: child.title ?? child.label}, name),
          el('td', {class: 'number'}, bytesIn(child)),
          el('td', {class: 'number'}, percent(child.size, this.at.size),
             shareBar(child.size / this.at.size)));
    });
    if (children.length > levelRows) {
      rows.push(
          el('tr', {},
             el('td', {colspan: 3, class: 'empty'},
                `and ${count(children.length - levelRows)} smaller ones, in the table of items`)));
    }
    this.level.replaceChildren(...rows);
  }

  resize() {
    const {width, height} = this.frame.getBoundingClientRect();
    if (width === this.width && height === this.height) return;
    this.draw();
  }

  draw() {
    const paper = Boolean(this.printing);
    const {width, height} = this.frame.getBoundingClientRect();
    if (width < 1 || height < 1) return;
    Object.assign(this, {width, height});
    const ratio = Math.max(devicePixelRatio || 1, paper ? 2 : 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const theme = themeColours(paper);
    this.painter = new Painter(context, theme);
    context.fillStyle = theme.page;
    context.fillRect(0, 0, width, height);
    this.boxes = layoutTree(this.at, width, height);
    this.painter.boxes(
        this.boxes, (node) => this.look(node, theme, this.painter),
        (node) => this.found && this.isFound(node));
    this.copy = null;
    this.node.dataset.boxes = this.boxes.length;
    if (this.chosen) this.paintOver(this.chosen);
  }

  // Returns the map without frames.
  get picture() {
    if (!this.copy && this.canvas.width > 0) {
      this.copy = el('canvas', {width: this.canvas.width, height: this.canvas.height});
      this.copy.getContext('2d').drawImage(this.canvas, 0, 0);
    }
    return this.copy;
  }

  // Whether the search found a node. A group that is drawn as one box is found if one of its leaves
  // is.
  isFound(node) {
    return node.children ? node.children.some((child) => this.isFound(child)) :
                           this.found.has(node.leaf);
  }

  // Restores the drawing without its frame, and draws the frame around `box`.
  paintOver(box = null) {
    const context = this.canvas.getContext('2d');
    context.drawImage(this.picture, 0, 0, this.width, this.height);
    if (box) this.painter.frame(box);
  }

  place(event) {
    const {left, top} = this.canvas.getBoundingClientRect();
    return boxAt(this.boxes, event.clientX - left, event.clientY - top);
  }

  point(event) {
    const box = this.place(event);
    if (box !== this.pointed) {
      this.pointed = box;
      this.paintOver(box);
    }
    this.canvas.classList.toggle('zooms', Boolean(box && this.groupOn(box.node)));
    if (!box) return tip.hide();
    const {title, rows} = this.details(box.node, this.root);
    return tip.show(event.clientX, event.clientY, title, rows);
  }

  leave() {
    this.pointed = null;
    this.paintOver(this.chosen);
    tip.hide();
  }

  // Returns the group one level down that holds the node, because a click zooms by one level.
  groupOn(node) {
    let group = node.children ? node : node.parent;
    while (group && group.parent !== this.at) group = group.parent;
    return group;
  }

  click(event) {
    const box = this.place(event);
    const group = box && this.groupOn(box.node);
    if (group) this.zoomTo(group.path);
  }

  key(event) {
    const steps = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1};
    const level = (this.boxes ?? []).filter((box) => box.node.parent === this.at);
    if (event.key in steps && level.length > 0) {
      const now = level.indexOf(this.chosen);
      const next = now < 0 ? 0 : (now + steps[event.key] + level.length) % level.length;
      this.choose(level[next]);
    } else if (event.key === 'Enter' && this.chosen?.node.children) {
      this.zoomTo(this.chosen.node.path);
    } else if ((event.key === 'Escape' || event.key === 'Backspace') && this.at.parent) {
      this.zoomTo(this.at.parent.path);
    } else {
      return;
    }
    event.preventDefault();
  }

  choose(box) {
    this.chosen = box;
    this.paintOver(box);
    const {title, rows} = this.details(box.node, this.root);
    this.spoken.textContent = `${title}: ${rows.map((row) => row.join(' ')).join(', ')}`;
    const {left, top} = this.canvas.getBoundingClientRect();
    tip.show(left + box.x + Math.min(box.w, 40), top + box.y + Math.min(box.h, 30), title, rows);
  }

  // Animates the zoom: the new picture grows out of the box that was entered, or the old picture
  // shrinks into its box.
  fly(old, box, inward) {
    if (matchMedia('(prefers-reduced-motion: reduce)').matches || !old || !box) return;
    const context = this.canvas.getContext('2d');
    const {width, height, picture} = this;
    const begin = performance.now();
    const frame = (now) => {
      if (this.picture !== picture) return;  // the map was drawn again meanwhile
      const t = Math.min(1, Math.max(0, (now - begin) / 170));
      const open = inward ? t * (2 - t) : 1 - t * (2 - t);
      context.drawImage(inward ? old : picture, 0, 0, width, height);
      context.globalAlpha = open;
      context.drawImage(
          inward ? picture : old, box.x * (1 - open), box.y * (1 - open),
          box.w + (width - box.w) * open, box.h + (height - box.h) * open);
      context.globalAlpha = 1;
      if (t < 1)
        requestAnimationFrame(frame);
      else
        this.paintOver();
    };
    requestAnimationFrame(frame);
  }
}
