// Shows where outputs begin to differ: charts and a table over layers, a heat map over positions,
// and histograms of the differences.

// Returns the name of a tensor without its layer: cache.3.key -> cache.key.
const probeOf = (row) => row.name.replace(/\.\d+(?=\.|$)/, '');

const fromFinite = (values, low, high) => values.filter((x) => !absent(x) && x > low && x < high);

const allTensors = 'all in model order';

function probesOf(comparison) {
  if (!comparison.layers?.length) return new Map();
  const probes = new Map([[allTensors, comparison.layers]]);
  for (const row of comparison.layers) {
    const probe = probeOf(row);
    if (!probes.has(probe)) probes.set(probe, []);
    probes.get(probe).push(row);
  }
  return probes;
}

// The scale of signal-to-noise ratios. Equal values, which have no ratio, are drawn at its upper
// end.
function ratioScale(values) {
  const finite = fromFinite(values, -equalDecibels, equalDecibels);
  const [low, high] =
      finite.length > 0 ? [Math.min(0, ...finite), Math.max(20, ...finite)] : [0, 100];
  return (from, to) => linearScale(low, high * 1.06, from, to);
}

function errorScale(values) {
  const finite = fromFinite(values, 0, 1e300);
  const [low, high] = finite.length > 0 ? [Math.min(...finite), Math.max(...finite)] : [1e-8, 1];
  return (from, to) => logScale(low, high, from, to);
}

// Returns the ratio of a row. Values that are not finite are drawn as the worst ratio.
const ratioOf = (row) =>
    !absent(row.sqnr_db) && isNotFinite(row.sqnr_db) ? -equalDecibels : row.sqnr_db;

const clampTo = (scale, value) =>
    absent(value) ? value : Math.min(scale(0, 1).high, Math.max(scale(0, 1).low, value));

function layerChart(rows, probe, divergence) {
  const floors = rows.map((row) => row.floor_db);
  const limits = rows.map((row) => row.limit);
  const ratio = ratioScale([...rows.map((row) => row.sqnr_db), ...floors]);
  const error = errorScale([...rows.map((row) => row.max_abs), ...limits]);
  const has = (values) => values.some((value) => !absent(value));
  const lines = [
    {
      label: 'SQNR',
      axis: 'left',
      series: 0,
      values: rows.map((row) => clampTo(ratio, ratioOf(row))),
      bounds: has(floors) ? floors : null
    },
    {
      label: 'max abs',
      axis: 'right',
      series: 1,
      values: rows.map((row) => clampTo(error, row.max_abs)),
      bounds: has(limits) ? limits : null
    }
  ];
  const named = rows.findIndex((row) => row.name === divergence?.tensor);
  const marked = named >= 0 ? named : rows.findIndex((row) => row.within === false);
  const keys = [
    [0, false, 'signal-to-noise ratio in dB, left: higher is better'],
    [1, false, 'largest difference, right: lower is better']
  ];
  if (has(floors)) keys.push([0, true, 'floor of the ratio']);
  if (has(limits)) keys.push([1, true, 'limit of the difference']);
  return [
    lineLegend(keys), rowChart({
      names: rows.map(placeName),
      lines,
      left: ratio,
      right: error,
      leftLabel: 'SQNR in dB',
      rightLabel: 'max abs',
      xLabel: probe === allTensors ? 'tensors in model order, by number' : `${probe}, by number`,
      marked,
      markText: named >= 0 ? `first divergence: ${rows[named].name}` : 'beyond its bound',
      label: `${probe}: ratio and largest difference by layer. The table below has the numbers.`,
      details: (i) => ({title: plain(rows[i].name), rows: layerDetails(rows[i])})
    })
  ];
}

function placeName(row) {
  const digits = row.name.match(/\.(\d+)(?=\.|$)/);
  return digits ? digits[1] : absent(row.layer) ? plain(row.name) : String(row.layer);
}

function layerDetails(row) {
  const rows = [['SQNR', decibels(row.sqnr_db)], ['max abs', number(row.max_abs)]];
  if (!absent(row.floor_db)) rows.push(['floor', decibels(row.floor_db)]);
  if (!absent(row.limit)) rows.push(['limit', number(row.limit)]);
  if (!absent(row.noise_ratio)) {
    rows.push(['noise', number(row.noise)], ['bound', number(row.bound)]);
    rows.push(['ratio to noise', number(row.noise_ratio)]);
  }
  if (row.worst) rows.push(['worst at', worstText(row.worst)]);
  rows.push(['verdict', row.within === false ? '✕ beyond the bound' : '✓ within']);
  return rows;
}

// Formats enough digits to show that two values differ.
const exact = (x) => Number(x.toPrecision(7)).toString().replaceAll('-', minus);

function worstText(worst) {
  if (!worst) return '';
  const place =
      [
        worst.prompt ? `'${plain(worst.prompt)}'` : '',
        absent(worst.position) ? '' : `position ${worst.position}`,
        absent(worst.channel) ? '' : `channel ${worst.channel}`
      ].filter((text) => text !== '')
          .join(', ');
  const ours = worst.ours === null ? 'not finite' : exact(worst.ours);
  return absent(worst.expected) ? place : `${place}: ${ours}, expected ${exact(worst.expected)}`;
}

function layerTable(rows) {
  const figure = (key, label, text) =>
      ({key, label, numeric: true, value: (row) => row[key], text: (row) => text(row[key])});
  return new Table({
           id: 'layers',
           label: 'Tensors of layers',
           rows,
           first: 12,
           search: rows.length > 12,
           columns: [
             {
               key: 'name',
               label: 'Tensor',
               class: 'name',
               value: (row) => row.name,
               text: (row) => plain(row.name)
             },
             {
               key: 'within',
               label: 'Verdict',
               facet: true,
               value: (row) => row.within === false ? 'beyond' : 'within',
               cell: (row) =>
                   verdict(row.within !== false, row.within === false ? 'beyond' : 'within')
             },
             figure('sqnr_db', 'SQNR', decibels), figure('floor_db', 'Floor', decibels),
             figure('margin_db', 'Margin', decibels), figure('max_abs', 'Max abs', number),
             figure('noise', 'Noise', number), figure('bound', 'Bound', number),
             figure('noise_ratio', 'Ratio to noise', number),
             figure('limit', 'Limit', number), figure('rel_rms', 'Rel. rms', number), {
               key: 'cosine',
               label: 'Cosine',
               numeric: true,
               value: (row) => row.cosine,
               text: (row) => cosineText(row.cosine, 7)
             },
             {key: 'worst', label: 'Largest difference', value: (row) => worstText(row.worst)}
           ]
         })
      .node;
}

// Returns the probe that diverges first, if it has enough tensors for a line.
function firstProbe(probes, divergence) {
  const list = [...probes];
  const failing = list.find(
      ([probe, rows]) =>
          probe !== allTensors && rows.some((row) => row.name === divergence?.tensor));
  const [probe, rows] = failing ?? list[1] ?? list[0];
  return rows.length < 4 ? allTensors : probe;
}

function layersPart(comparison) {
  const probes = probesOf(comparison);
  if (probes.size === 0) return null;
  const divergence = comparison.first_divergence;
  const place = el('div');
  const known = () =>
      probes.has(state.get('probe')) ? state.get('probe') : firstProbe(probes, divergence);
  const show = () => {
    picker.show(known());
    place.replaceChildren(...layerChart(probes.get(known()), known(), divergence));
  };
  const picker =
      choice('Tensor', [...probes.keys()].map((probe) => [probe, plain(probe)]), '', (probe) => {
        state.set('probe', probe);
        show();
      });
  show();
  return [
    divergence ?
        el('p', {},
           verdict(false, `First divergence: ${plain(divergence.text ?? divergence.tensor)}`)) :
        null,
    picker.node, place, layerTable(comparison.layers)
  ];
}

// The scale leaves out the values that mean "equal" and "not finite".
const equalError = -16;
const notFiniteError = 16;

function errorText(value) {
  if (absent(value)) return 'not compared';
  if (value <= equalError) return 'equal';
  return value >= notFiniteError ? 'not finite' :
                                   `${number(10 ** value)} of the rms of the position`;
}

const columnTexts = (columns) => (c) => columns.positions > 1 ?
    `${c * columns.positions}–${(c + 1) * columns.positions - 1}` :
    String(c);

function heatPart(prompt) {
  const rows =
      (prompt.heat_map ?? []).map((row) => ({name: plain(row.name), values: row.log10_error}));
  if (rows.length === 0) return null;
  const finite = fromFinite(rows.flatMap((row) => row.values), equalError, notFiniteError);
  const [low, high] =
      finite.length > 0 ? [Math.max(-9, Math.min(...finite)), Math.max(...finite)] : [-9, 0];
  const columnText = columnTexts(prompt.columns);
  return [
    heatKeys(
        `error of ${number(10 ** low)} and less`,
        `${number(10 ** high)} of the rms of the position`),
    heatMap({
      rows,
      columns: prompt.columns.count,
      low,
      high: Math.max(high, low + 1),
      columnText,
      valueText: errorText,
      rowLabel: 'position',
      xLabel: 'position in the prompt',
      label: 'Error by tensor and position. The first rows are the first layers.'
    }),
    positionChart(prompt, columnText)
  ];
}

function positionChart(prompt, columnText) {
  const {by_position: by} = prompt;
  if (!by?.kl?.some((kl) => !absent(kl))) return null;
  const top = Math.max(...by.kl.map((x) => Math.min(x ?? 0, 1e300)));
  const bars = by.kl.map(
      (kl, c) =>
          ({name: columnText(c), value: kl ?? 0, tone: by.top1?.[c] === false ? 'bad' : ''}));
  return [
    el('h3', {}, 'KL divergence of the logits by position'),
    by.top1?.some((same) => same === false) ?
        el('p', {class: 'lead'}, 'Red: another token is the likeliest one.') :
        null,
    barChart({
      bars,
      scale: (from, to) => linearScale(0, top || 1, from, to, 4),
      label: 'KL divergence by position',
      yLabel: 'KL in nats',
      xLabel: 'position in the prompt',
      height: 200,
      details: (c) => ({
        title: `Position ${columnText(c)}`,
        rows: [
          ['KL', number(by.kl[c])], ['max abs', number(by.max_abs?.[c])],
          ['likeliest token', by.top1?.[c] === false ? 'another' : 'the same']
        ]
      })
    })
  ];
}

function histogramPart(prompt, output) {
  const {histogram} = prompt;
  if (!histogram) return null;
  const of = (bins, textOf, label, xLabel) => {
    if (!bins || bins.length === 0) return null;
    const bars = bins.map((bin) => ({name: textOf(bin), value: bin.count}));
    return [
      el('h3', {}, label), barChart({
        bars,
        scale: (from, to) => logScale(1, Math.max(10, ...bins.map((bin) => bin.count)), from, to),
        label,
        yLabel: 'values',
        xLabel,
        height: 230,
        details: (i) => ({
          title: `${number(bins[i].from)} to ${number(bins[i].to)}`,
          rows: [['values', count(bins[i].count)]]
        })
      })
    ];
  };
  const others = [];
  if (histogram.zero > 0) others.push(`${plural(histogram.zero, 'value')} equal`);
  if (histogram.not_finite > 0) others.push(`${plural(histogram.not_finite, 'value')} not finite`);
  const units = histogram.units;
  return [
    others.length > 0 ? el('p', {class: 'lead'}, `Beside these: ${others.join(', ')}.`) : null,
    of(histogram.decades, (bin) => number(bin.from),
       `Absolute differences of ${output}, in half-decades`, 'difference, from'),
    of(Array.isArray(units) ? units : units?.bins, (bin) => count(bin.from),
       `The same in units in the last place${
           histogram.dtype ?? units?.dtype ? ` of ${histogram.dtype ?? units?.dtype}` : ''}`,
       'units, from')
  ];
}
