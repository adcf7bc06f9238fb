// Lines over layers, and bars. Colours come from the style (.s0, .s1); lines also differ by dashes
// and marks, so that they can be told apart on paper.

const chartWidth = 1260;

// Draws the mark of a point: a dot, a square or a diamond.
function pointMark(series, x, y) {
  if (series === 1) return `M${x - 3},${y - 3}h6v6h-6z`;
  if (series === 2) return `M${x},${y - 4}l4,4l-4,4l-4,-4z`;
  return `M${x - 3},${y}a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z`;
}

// Draws a line through points that have a value. Points without a value interrupt the line.
function linePath(points) {
  let pen = 'M';
  let path = '';
  for (const point of points) {
    if (!point) {
      pen = 'M';
      continue;
    }
    path += `${pen}${point[0].toFixed(1)},${point[1].toFixed(1)}`;
    pen = 'L';
  }
  return path;
}

// Draws one or two measures over a row of things. The first measure has its axis at the left, the
// second one at the right. names: names of the things. lines: {label, values, axis: 'left' |
// 'right', bounds (one per value, or none), series}. left, right: functions (from, to) => scale.
// marked: index of the thing to point out.
function rowChart(
    {names, lines, left, right, leftLabel, rightLabel, xLabel, marked, markText, label, details}) {
  const height = 340;
  const [x0, x1, y0, y1] = [84, chartWidth - (right ? 72 : 20), 26, height - 48];
  const step = (x1 - x0) / names.length;
  const x = (i) => x0 + step * (i + 0.5);
  const scales = {left: left(y1, y0), right: right?.(y1, y0)};
  const draw = ({values, axis, bounds, series}) => {
    const y = scales[axis];
    const points = values.map((value, i) => absent(value) ? null : [x(i), y(value)]);
    const limit = bounds?.map((value, i) => absent(value) ? null : [x(i), y(value)]);
    return svgEl(
        'g', {class: `line s${series}`},
        limit ? svgEl('path', {class: 'bound', d: linePath(limit)}) : null,
        svgEl('path', {class: 'run', d: linePath(points)}), svgEl('path', {
          class: 'points',
          d: points.filter(Boolean).map(([px, py]) => pointMark(series, px, py)).join('')
        }));
  };
  const cross = svgEl('line', {class: 'cross-line', y1: y0, y2: y1, visibility: 'hidden'});
  const svg = chartFrame(
      chartWidth, height, label,
      axisY(
          scales.left, x0, 'left', leftLabel, x1,
          `s${lines.find((line) => line.axis === 'left').series}`),
      right ? axisY(
                  scales.right, x1, 'right', rightLabel, undefined,
                  `s${lines.find((line) => line.axis === 'right').series}`) :
              null,
      axisX(names.map((name, i) => [x(i), name]), y1, xLabel, (x0 + x1) / 2),
      marked >= 0 ? markedPlace(x(marked), y0, y1, step, markText, x1) : null, lines.map(draw),
      cross);
  follow(svg.firstChild, names.length, (i) => {
    cross.setAttribute('visibility', i === null ? 'hidden' : 'visible');
    if (i !== null) {
      cross.setAttribute('x1', x(i));
      cross.setAttribute('x2', x(i));
    }
  }, (px) => Math.floor((px - x0) / step), details);
  return svg;
}

function markedPlace(x, y0, y1, step, text, end) {
  const atEnd = x > end - 260;
  const width = Math.max(6, Math.min(step, 40));
  return svgEl(
      'g', {class: 'marked'}, svgEl('rect', {x: x - width / 2, y: y0, width, height: y1 - y0}),
      svgEl(
          'text', {
            x: atEnd ? x + width / 2 : x - width / 2,
            y: y0 - 9,
            'text-anchor': atEnd ? 'end' : 'start'
          },
          text));
}

// Shows details(i) = {title, rows} for the thing under the pointer or chosen by the arrow keys.
function follow(svg, length, show, indexAt, details) {
  let now = null;
  const to = (i, x, y) => {
    now = i;
    show(i);
    if (i === null) return tip.hide();
    const {title, rows} = details(i);
    return tip.show(x, y, title, rows);
  };
  const leave = () => to(null);
  svg.setAttribute('tabindex', '0');
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const i = indexAt((event.clientX - box.left) * chartWidth / box.width);
    to(i >= 0 && i < length ? i : null, event.clientX, event.clientY);
  });
  svg.addEventListener('pointerleave', leave);
  svg.addEventListener('blur', leave);
  svg.addEventListener('keydown', (event) => {
    const move = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!move) return;
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    const next =
        now === null ? (move > 0 ? 0 : length - 1) : Math.min(length - 1, Math.max(0, now + move));
    to(next, box.left + box.width * (next + 0.5) / length, box.top + 40);
  });
}

// Draws vertical bars. bars: {name, value, tone}. scale: function (from, to) => scale from 0 or 1.
function barChart({bars, scale, label, yLabel, xLabel, details, height = 250}) {
  const [x0, x1, y0, y1] = [84, chartWidth - 20, 14, height - 48];
  const step = (x1 - x0) / bars.length;
  const y = scale(y1, y0);
  const gap = step > 14 ? 3 : step > 4 ? 1 : 0;
  const rects = bars.map((bar, i) => bar.value > 0 && svgEl('rect', {
                                       class: `bar ${bar.tone ? `part ${bar.tone}` : ''}`,
                                       x: (x0 + step * i + gap / 2).toFixed(2),
                                       width: Math.max(0.5, step - gap).toFixed(2),
                                       y: Math.min(y(bar.value), y1 - 1.5).toFixed(2),
                                       height: Math.max(1.5, y1 - y(bar.value)).toFixed(2)
                                     }));
  const chart = chartFrame(
      chartWidth, height, label, axisY(y, x0, 'left', yLabel, x1),
      axisX(bars.map((bar, i) => [x0 + step * (i + 0.5), bar.name]), y1, xLabel, (x0 + x1) / 2),
      rects);
  follow(
      chart.firstChild, bars.length,
      (i) => rects.forEach((rect, other) => rect && rect.classList.toggle('on', i === other)),
      (px) => Math.floor((px - x0) / step), details);
  return chart;
}

function lineLegend(entries) {
  return el(
      'div', {class: 'keys chart-keys'},
      entries.map(
          ([series, bound, text]) =>
              el('span', {class: 'key'},
                 svgEl(
                     'svg', {
                       class: `line s${series}`,
                       width: 34,
                       height: 12,
                       viewBox: '0 0 34 12',
                       'aria-hidden': 'true'
                     },
                     svgEl('path', {class: bound ? 'bound' : 'run', d: 'M1,6L33,6'}),
                     bound ? null : svgEl('path', {class: 'points', d: pointMark(series, 17, 6)})),
                 text)));
}
