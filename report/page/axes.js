// Scales and axes of charts. A scale maps numbers to pixels and knows where its marks are.

// Marks at 1, 2 or 5 times a power of ten.
function niceMarks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const marks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    marks.push(i * step);
  return marks;
}

function linearScale(low, high, from, to, wanted = 6) {
  if (!(high > low)) [low, high] = [low - 0.5, low + 0.5];
  const scale = (value) => from + (to - from) * (value - low) / (high - low);
  const text = (mark) => mark !== 0 && Math.abs(high) < 1e-2 ?
      number(mark) :
      String(Number(mark.toPrecision(6))).replace('-', minus);
  return Object.assign(scale, {marks: niceMarks(low, high, wanted), text, low, high});
}

// A logarithmic scale in powers of ten. Zero and negative numbers are drawn at the lower end.
function logScale(low, high, from, to) {
  const [first, last] = [
    Math.floor(Math.log10(low)),
    Math.max(Math.ceil(Math.log10(high)), Math.floor(Math.log10(low)) + 1)
  ];
  const scale = (value) => {
    const at = value > 0 ? Math.min(last, Math.max(first, Math.log10(value))) : first;
    return from + (to - from) * (at - first) / (last - first);
  };
  const every = Math.ceil((last - first) / 8);
  const marks = [];
  for (let power = first; power <= last; power += every) marks.push(10 ** power);
  return Object.assign(scale, {
    marks,
    text: (mark) => powerText(Math.round(Math.log10(mark))),
    low: 10 ** first,
    high: 10 ** last
  });
}

const raised = {
  '-': '⁻',
  0: '⁰',
  1: '¹',
  2: '²',
  3: '³',
  4: '⁴',
  5: '⁵',
  6: '⁶',
  7: '⁷',
  8: '⁸',
  9: '⁹'
};
const powerText = (power) =>
    power === 0 ? '1' : `10${[...String(power)].map((c) => raised[c]).join('')}`;

// Draws a vertical axis at x, with lines across the chart to `across` if that is given.
function axisY(scale, x, side, label, across, tone = '') {
  const anchor = side === 'left' ? 'end' : 'start';
  const away = side === 'left' ? -8 : 8;
  const middle = (scale(scale.low) + scale(scale.high)) / 2;
  const turn = side === 'left' ? x - 68 : x + 50;
  return svgEl(
      'g', {class: `axis ${tone}`},
      scale.marks.map(
          (mark) =>
              [across === undefined ?
                   null :
                   svgEl(
                       'line',
                       {class: 'rule', x1: x, x2: across, y1: scale(mark), y2: scale(mark)}),
               svgEl(
                   'text', {x: x + away, y: scale(mark), dy: '0.32em', 'text-anchor': anchor},
                   scale.text(mark))]),
      svgEl(
          'text', {
            class: 'axis-label',
            x: turn,
            y: middle,
            'text-anchor': 'middle',
            transform: `rotate(-90 ${turn} ${middle})`
          },
          label));
}

// Draws a horizontal axis at y. `marks` are pairs of a position in pixels and a text, at equal
// distances. If texts would overlap, only every second, third, ... mark is drawn.
function axisX(marks, y, label, middle) {
  const widest = Math.max(...marks.map(([, text]) => text.length)) * 6.8 + 6;
  const step = marks.length > 1 ? marks[1][0] - marks[0][0] : widest;
  const every = Math.ceil(widest / step - 1e-6);
  const texts =
      marks.filter((mark, i) => i % every === 0)
          .map(([x, text]) => svgEl('text', {x, y: y + 16, 'text-anchor': 'middle'}, text));
  return svgEl(
      'g', {class: 'axis'}, texts,
      svgEl('text', {class: 'axis-label', x: middle, y: y + 36, 'text-anchor': 'middle'}, label));
}

// Makes the frame of a chart. Screen readers read `label`; a table has the numbers.
function chartFrame(width, height, label, ...children) {
  return el(
      'div', {class: 'chart'},
      svgEl(
          'svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label}, children));
}
