// Draws the boxes of a treemap on a canvas.

const labelFont = '11px system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';

class Painter {
  constructor(context, theme) {
    this.pen = context;
    this.theme = theme;
    this.made = new Map();
    context.font = labelFont;
    context.textBaseline = 'middle';
  }

  pattern(name, colour) {
    const key = `${name} ${colour}`;
    if (!this.made.has(key)) this.made.set(key, pattern(this.pen, colour, patterns[name]));
    return this.made.get(key);
  }

  // look(node) returns the drawing of a leaf: {fill, hatch (name of a pattern), mark (text after
  // the name)}. found(node) tells whether the search finds the leaf, or is null if there is no
  // search.
  boxes(boxes, look, found) {
    for (const box of boxes) {
      if (box.depth === 0) continue;
      if (box.node.children && (box.head > 0 || Math.min(box.w, box.h) >= smallestSide))
        this.group(box);
      else
        this.leaf(box, look(box.node), found(box.node));
    }
  }

  group({node, x, y, w, h, head, depth}) {
    const {pen, theme} = this;
    pen.fillStyle = theme.group;
    pen.fillRect(x, y, Math.max(0, w - 1), Math.max(0, h - 1));
    if (theme.paper) {
      pen.strokeStyle = '#000';
      pen.lineWidth = depth === 1 ? 1.5 : 0.75;
      pen.strokeRect(x + 0.5, y + 0.5, w - 2, h - 2);
    }
    if (head === 0) return;
    pen.fillStyle = theme.groupText;
    pen.font = depth === 1 ? `600 ${labelFont}` : labelFont;
    const size = bytesIn(node);
    const room = w - 12;
    const name = this.cut(node.label, room);
    pen.fillText(name, x + 6, y + head / 2 + 1);
    const used = pen.measureText(name).width;
    const sizeWidth = pen.measureText(size).width;
    pen.globalAlpha = 0.72;
    if (used + sizeWidth + 14 < room) pen.fillText(size, x + w - 7 - sizeWidth, y + head / 2 + 1);
    pen.globalAlpha = 1;
    pen.font = labelFont;
  }

  leaf({node, x, y, w, h}, look, found) {
    const {pen, theme} = this;
    // Boxes have a gap between them if they are large enough.
    const gap = w > 4 && h > 4 ? 1 : w > 2 && h > 2 ? 0.5 : 0;
    const [bw, bh] = [w - gap, h - gap];
    pen.globalAlpha = found === false ? 0.16 : 1;
    pen.fillStyle = look.fill;
    pen.fillRect(x, y, bw, bh);
    if (look.hatch && bw > 3 && bh > 3) {
      pen.fillStyle = this.pattern(look.hatch, theme.hatch);
      pen.fillRect(x, y, bw, bh);
    }
    if (theme.paper && bw > 2 && bh > 2) {
      pen.strokeStyle = '#000';
      pen.lineWidth = 0.5;
      pen.strokeRect(x + 0.25, y + 0.25, bw - 0.5, bh - 0.5);
    }
    if (w > 22 && h > 15 && found !== false) this.leafText(node, look, x, y, bw, bh);
    pen.globalAlpha = 1;
    if (found === true && bw > 8 && bh > 8) {
      pen.strokeStyle = theme.accent;
      pen.lineWidth = 1.5;
      pen.strokeRect(x + 1, y + 1, bw - 2, bh - 2);
    }
  }

  leafText(node, look, x, y, w, h) {
    const {pen, theme} = this;
    const room = w - 10;
    const name = this.nameIn(node, room);
    if (name === '') return;
    const size = look.mark ?? bytesIn(node);
    const two = h > 31 && pen.measureText(size).width <= room;
    if (look.hatch || theme.paper) this.behindText(name, two ? size : '', look.fill, x, y, h);
    pen.fillStyle = theme.text;
    pen.fillText(name, x + 5, y + Math.min(h / 2, 10.5) + 0.5);
    if (!two) return;
    pen.globalAlpha *= 0.75;
    pen.fillText(size, x + 5, y + 24);
  }

  // Fills the background of a text, because text on lines is hard to read.
  behindText(name, size, fill, x, y, h) {
    const {pen} = this;
    const width = Math.max(pen.measureText(name).width, pen.measureText(size).width);
    pen.fillStyle = typeof fill === 'string' ? fill : '#fff';
    pen.fillRect(x + 2, y + Math.min(h / 2, 10.5) - 7, width + 6, size ? 28 : 14);
  }

  // Writes the complete name if it fits, else a short form, else the beginning of the name.
  nameIn(node, room) {
    const fits =
        [node.label, ...node.short ?? []].find((text) => this.pen.measureText(text).width <= room);
    return fits ?? (room > 36 ? this.cut(node.label, room) : '');
  }

  // Returns the text, or as much of it as fits in `room` pixels.
  cut(text, room) {
    const width = this.pen.measureText(text).width;
    if (width <= room) return text;
    let end = Math.floor(text.length * room / width);
    while (end > 1 && this.pen.measureText(`${text.slice(0, end)}…`).width > room) --end;
    return end > 1 ? `${text.slice(0, end)}…` : '';
  }

  // Draws the frame of the box that the reader has chosen by keys or pointer.
  frame({x, y, w, h}) {
    const {pen, theme} = this;
    pen.lineWidth = 3;
    pen.strokeStyle = theme.page;
    pen.strokeRect(x + 1, y + 1, w - 3, h - 3);
    pen.lineWidth = 1.5;
    pen.strokeStyle = theme.groupText;
    pen.strokeRect(x + 1, y + 1, w - 3, h - 3);
  }
}

const bytesIn = (node) => node.unit === 'elements' ? count(node.size) : bytes(node.size);
