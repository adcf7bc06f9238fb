// Colours of kinds of things. The style defines them as --c0 to --c11, for light and for dark. The
// last one is for all kinds beyond the others. On paper, patterns replace colours.

const colourCount = 12;
const dark = matchMedia('(prefers-color-scheme: dark)');

// Returns the colour of each key. The first keys get colours of their own.
function colourScale(keys) {
  const indices = new Map(keys.map((key, i) => [key, Math.min(i, colourCount - 1)]));
  return (key) => indices.get(key) ?? colourCount - 1;
}

// Returns the colours of the style in the form that a canvas accepts.
function themeColours(paper) {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const fills = [];
  for (let i = 0; i < colourCount; ++i) fills.push(read(`--c${i}`));
  const theme = {
    fills,
    text: read('--on-fill'),
    page: read('--surface'),
    group: read('--group'),
    groupText: read('--text'),
    line: read('--surface'),
    grey: read('--same'),
    more: read('--more'),
    less: read('--less'),
    accent: read('--accent'),
    hatch: read('--hatch'),
    paper: false,
  };
  return paper ? {...theme, ...paperColours} : theme;
}

const paperColours = {
  fills: [
    '#fff', '#e4e4e4', '#f4f4f4', '#fff', '#d4d4d4', '#fff', '#ececec', '#fff', '#dcdcdc', '#fff',
    '#f4f4f4', '#fff'
  ],
  text: '#000',
  page: '#fff',
  group: '#fff',
  groupText: '#000',
  line: '#000',
  grey: '#f0f0f0',
  more: '#fff',
  less: '#fff',
  accent: '#000',
  hatch: '#555',
  paper: true,
};

// Makes a small repeated drawing. `draw` strokes one tile of 8 by 8 pixels.
function pattern(context, colour, draw) {
  const ratio = Math.max(1, Math.round(devicePixelRatio));
  const tile = el('canvas', {width: 8 * ratio, height: 8 * ratio});
  const pen = tile.getContext('2d');
  pen.scale(ratio, ratio);
  pen.strokeStyle = pen.fillStyle = colour;
  draw(pen);
  const made = context.createPattern(tile, 'repeat');
  made.setTransform(new DOMMatrix().scale(1 / ratio));
  return made;
}

function lines(pen, ...segments) {
  pen.lineWidth = 1;
  pen.beginPath();
  for (const [x0, y0, x1, y1] of segments) {
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
  }
  pen.stroke();
}

const patterns = {
  diagonal: (pen) => lines(pen, [-1, 1, 1, -1], [-1, 9, 9, -1], [7, 9, 9, 7]),
  cross: (pen) => lines(pen, [-1, 9, 9, -1], [-1, -1, 9, 9]),
  level: (pen) => lines(pen, [0, 2.5, 8, 2.5], [0, 6.5, 8, 6.5]),
  upright: (pen) => lines(pen, [2.5, 0, 2.5, 8]),
  dots: (pen) => {
    pen.fillRect(1, 1, 1.5, 1.5);
    pen.fillRect(5, 5, 1.5, 1.5);
  },
  grid: (pen) => lines(pen, [0, 4.5, 8, 4.5], [4.5, 0, 4.5, 8]),
};

// Distinguishes colours on paper: every colour has its own pair of grey and pattern. Diagonal lines
// are reserved for duplicates.
const paperPatterns = [
  null, null, 'dots', 'level', null, 'upright', 'grid', 'dots', 'level', 'grid', 'upright', null
];
