// Draws a grid of cells from pale to strong colours: rows are tensors in model order, columns are
// positions.

// rows: {name, values}. low, high: the values at the ends of the scale.
function heatMap({rows, columns, low, high, label, columnText, valueText, rowLabel, xLabel}) {
  const labelWidth = 190;
  const cellHeight = rows.length > 60 ? 9 : rows.length > 30 ? 13 : 18;
  const width = chartWidth;
  const step = (width - labelWidth - 20) / columns;
  const height = rows.length * cellHeight + 52;
  const share = (value) => Math.min(1, Math.max(0, (value - low) / (high - low || 1)));
  const every = Math.ceil(11 / cellHeight);
  const gap = step > 5 ? 1 : 0;
  const cells =
      rows.flatMap((row, r) => row.values.map((value, c) => absent(value) ? null : svgEl('rect', {
                                                class: 'heat',
                                                x: (labelWidth + c * step).toFixed(2),
                                                y: r * cellHeight + 4,
                                                width: (step - gap + 0.15 * (gap === 0)).toFixed(2),
                                                height: cellHeight - 1,
                                                opacity: (0.04 + 0.96 * share(value)).toFixed(3)
                                              })));
  const names = rows.map(
      (row, r) => r % every === 0 &&
          svgEl('text', {
                    class: 'row-name',
                    x: labelWidth - 8,
                    y: r * cellHeight + 4 + cellHeight / 2,
                    dy: '0.32em',
                    'text-anchor': 'end'
                  },
                cutName(row.name)));
  const focus = svgEl(
      'rect',
      {class: 'cell-frame', visibility: 'hidden', width: Math.max(step, 3), height: cellHeight});
  const marks =
      Array.from({length: columns}, (_, c) => [labelWidth + (c + 0.5) * step, columnText(c)]);
  const chart = chartFrame(
      width, height, label, svgEl('rect', {
        class: 'heat-back',
        x: labelWidth,
        y: 4,
        width: columns * step,
        height: rows.length * cellHeight - 1
      }),
      cells, names, focus,
      axisX(marks, rows.length * cellHeight + 2, xLabel, labelWidth + columns * step / 2));
  pointAtCell(
      chart.firstChild,
      {rows, columns, labelWidth, step, cellHeight, focus, rowLabel, columnText, valueText});
  return chart;
}

const cutName = (name) => name.length > 27 ? `${name.slice(0, 26)}…` : name;

function pointAtCell(
    svg, {rows, columns, labelWidth, step, cellHeight, focus, rowLabel, columnText, valueText}) {
  let [r, c] = [-1, 0];
  const leave = () => {
    focus.setAttribute('visibility', 'hidden');
    tip.hide();
  };
  const show = (x, y) => {
    if (r < 0 || r >= rows.length || c < 0 || c >= columns) return leave();
    focus.setAttribute('visibility', 'visible');
    focus.setAttribute('x', labelWidth + c * step);
    focus.setAttribute('y', r * cellHeight + 4);
    return tip.show(
        x, y, rows[r].name, [[rowLabel, columnText(c)], ['error', valueText(rows[r].values[c])]]);
  };
  svg.setAttribute('tabindex', '0');
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const ratio = chartWidth / box.width;
    c = Math.floor(((event.clientX - box.left) * ratio - labelWidth) / step);
    r = Math.floor(((event.clientY - box.top) * ratio - 4) / cellHeight);
    show(event.clientX, event.clientY);
  });
  svg.addEventListener('pointerleave', leave);
  svg.addEventListener('blur', leave);
  svg.addEventListener('keydown', (event) => {
    const move = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [
                    -1, 0
                  ]}[event.key];
    if (!move) return;
    event.preventDefault();
    r = Math.min(rows.length - 1, Math.max(0, r + move[0]));
    c = Math.min(columns - 1, Math.max(0, c + move[1]));
    const box = svg.getBoundingClientRect();
    const ratio = box.width / chartWidth;
    show(box.left + (labelWidth + c * step) * ratio, box.top + r * cellHeight * ratio);
  });
}

// Draws the scale of a heat map for the legend.
function heatKeys(lowText, highText) {
  const steps = [0.04, 0.28, 0.52, 0.76, 1];
  return el(
      'div', {class: 'keys chart-keys'},
      el('span', {class: 'key'}, lowText,
         svgEl(
             'svg', {width: 110, height: 12, viewBox: '0 0 110 12', 'aria-hidden': 'true'},
             steps.map(
                 (opacity, i) => svgEl(
                     'rect', {class: 'heat', x: i * 22, y: 0, width: 21, height: 12, opacity}))),
         highText));
}
