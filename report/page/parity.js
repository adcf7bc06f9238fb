// The page of a parity report. docs/verifying.md describes the document.

const isAbsent = (comparison) => !absent(comparison.absent);
const isSkipped = (prompt) => !absent(prompt.skipped);

// Returns the name of the bundle's output: logits, or hidden states and vectors of an encoder.
const outputOf = (comparison) => plain(comparison?.output ?? 'logits');

function boundsText(comparison) {
  const {bounds} = comparison;
  if (!bounds) return '';
  const output = outputOf(comparison);
  const parts = [];
  if (!absent(bounds.logits_max_abs))
    parts.push(`${output} within ${number(bounds.logits_max_abs)}`);
  if (!absent(bounds.bound))
    parts.push(`noise ${number(bounds.noise)}, bound ${number(bounds.bound)}`);
  if (bounds.source === 'none') parts.push('measured');
  if (!absent(bounds.logits_floor_db))
    parts.push(`${output} above ${decibels(bounds.logits_floor_db)}`);
  if (bounds.source === 'argument') parts.push('as --tolerance says');
  return `${plain(bounds.precision ?? '')}: ${parts.join(', ')}`;
}

function verdictBanner(report) {
  const {parity, verdict: text, reasons = []} = report;
  const tone = parity === null || absent(parity) ? 'neutral' : parity ? 'good' : 'bad';
  const more = reasons.filter((reason) => !(text ?? '').includes(reason));
  return el(
      'div', {class: `banner ${tone}`, role: 'status'},
      verdict(tone === 'neutral' ? null : parity, plain(text ?? (parity ? 'parity' : 'no parity'))),
      more.length > 0 ? el('ul', {}, more.map((reason) => el('li', {}, plain(reason)))) : null);
}

const worstMetrics = (report) =>
    (report.comparisons ?? []).find((c) => c.id === 'outputs' && !isAbsent(c)) ??
    (report.comparisons ?? []).findLast((c) => !isAbsent(c));

function parityTiles(report) {
  const main = worstMetrics(report);
  const metrics = main?.metrics ?? {};
  const prompts = (main?.prompts ?? []).filter((prompt) => !isSkipped(prompt));
  const first = (report.comparisons ?? []).map((c) => c.first_divergence).find((d) => d);
  const greedy = absent(metrics.greedy_total) || metrics.greedy_total === 0 ?
      null :
      tile(
          'Greedy tokens', `${count(metrics.greedy_match)} / ${count(metrics.greedy_total)}`,
          'as the reference chose');
  return main ?
      el('dl', {class: 'tiles'},
         tile(`SQNR of ${outputOf(main)}`, decibels(metrics.sqnr_db), 'the worst over prompts'),
         tile(`Max abs of ${outputOf(main)}`, number(metrics.max_abs), boundsText(main)),
         absent(metrics.top1_agreement) ?
             null :
             tile('Likeliest token', percent(metrics.top1_agreement, 1), 'of all positions agree'),
         greedy,
         tile(
             'Prompts', count(prompts.length),
             plural(prompts.reduce((sum, prompt) => sum + (prompt.tokens ?? 0), 0), 'token')),
         report.weights ?
             tile(
                 'Weights', `${count(report.weights.equal)} / ${count(report.weights.compared)}`,
                 'equal to the checkpoint, bit for bit',
                 report.weights.equal === report.weights.compared ? 'good' : 'bad') :
             null,
         first ? tile(
                     'First divergence',
                     absent(first.layer) ? plain(first.tensor) : `layer ${first.layer}`,
                     plain(first.text ?? first.tensor), 'bad') :
                                           null) :
                                           null;
}

function factRows(report) {
  const {bundle = {}, reference, checkpoint, against, options = {}} = report;
  const rows = [];
  const add = (name, value, more) => {
    if (value) rows.push([name, [plain(value), more ? el('span', {class: 'under'}, more) : null]]);
  };
  const shape = [
    bundle.model_type, bundle.layers && plural(bundle.layers, 'layer'),
    bundle.hidden_size && `width ${count(bundle.hidden_size)}`,
    bundle.vocab_size && `vocabulary ${count(bundle.vocab_size)}`,
    bundle.context_length && `context ${count(bundle.context_length)}`
  ];
  add('Bundle', bundle.name,
      [bytes(bundle.bytes), ...shape].filter(Boolean).map(plain).join(' · '));
  add('Weights', bundle.weight_dtype,
      [bundle.quantization, bundle.program_style].filter(Boolean).map(plain).join(' · '));
  add('Manifest', bundle.manifest_sha256, 'SHA-256');
  if (reference)
    add('Reference', reference.name || 'inside of the bundle', [
      reference.embedded ? 'embedded in the bundle' : '', bytes(reference.bytes),
      reference.sha256 ? `SHA-256 ${plain(reference.sha256)}` : ''
    ].filter(Boolean).join(' · '));
  if (checkpoint) add('Checkpoint', checkpoint.name, plural(checkpoint.files?.length ?? 0, 'file'));
  if (against)
    add('Other bundle', against.name,
        against.manifest_sha256 ? `manifest ${plain(against.manifest_sha256)}` : '');
  for (const [name, value] of Object.entries(options ?? {})) {
    if (!absent(value) && value.length !== 0)
      add(`--${name.replaceAll('_', '-')}`,
          Array.isArray(value) ? value.join(', ') : String(value));
  }
  return rows;
}

function comparedSection(report) {
  const lines = (list, tone) =>
      (list ?? [])
          .map(
              (line) =>
                  el('li', {class: tone},
                     el('strong', {}, tone === 'yes' ? 'Proven: ' : 'Not proven: '), plain(line)));
  const facts = factRows(report);
  return section(
      'compared', 'What was compared, and what it proves', null,
      el('ul', {class: 'statement'}, lines(report.proves, 'yes'),
         lines(report.does_not_prove, 'no')),
      facts.length > 0 ? el('div', {class: 'gap-above'},
                            simpleTable('What was compared', ['What', 'Which'], facts)) :
                         null);
}

const metricCells = (metrics = {}) =>
    [decibels(metrics.sqnr_db), number(metrics.max_abs), number(metrics.rel_rms),
     cosineText(metrics.cosine, 6), number(metrics.kl_mean), number(metrics.kl_max),
     percent(metrics.top1_agreement, 1),
     absent(metrics.greedy_total) || metrics.greedy_total === 0 ?
         '' :
         `${metrics.greedy_match} / ${metrics.greedy_total}`];
const metricHeads =
    ['#SQNR', '#Max abs', '#Rel. rms', '#Cosine', '#KL mean', '#KL max', '#Top-1', '#Greedy'];

// Returns the names of both sides, unless the title states them already.
function sidesOf({title, ours, expected}) {
  if (title.includes(ours) && title.includes(expected)) return null;
  return el('span', {class: 'under'}, `${plain(ours)} against ${plain(expected)}`);
}

function comparisonsSection(report, choose) {
  const comparisons = report.comparisons ?? [];
  if (comparisons.length === 0) return null;
  const rows = comparisons.map((comparison) => {
    const name = isAbsent(comparison) ?
        el('span', {}, sentence(plain(comparison.title))) :
        el('button', {type: 'button', class: 'link', click: () => choose(comparison.id)},
           sentence(plain(comparison.title)));
    const sides = sidesOf(comparison);
    if (isAbsent(comparison))
      return [[name, sides], ...metricHeads.map(() => ''), verdict(null, plain(comparison.absent))];
    return [
      [name, sides, el('span', {class: 'under'}, boundsText(comparison))],
      ...metricCells(comparison.metrics),
      verdict(comparison.parity, comparison.parity ? 'parity' : 'no parity')
    ];
  });
  return section(
      'comparisons', 'Comparisons',
      'Each holds one set of outputs to another, with the worst numbers over its prompts.',
      simpleTable('Comparisons', ['Comparison', ...metricHeads, 'Verdict'], rows));
}

function promptsPart(comparison, choose) {
  const rows = (comparison.prompts ?? []).map((prompt) => {
    if (isSkipped(prompt))
      return [
        plain(prompt.name), '', ...metricHeads.map(() => ''),
        verdict(null, `skipped: ${plain(prompt.skipped)}`)
      ];
    const notes = [];
    if (prompt.routing)
      notes.push(`experts: ${count(prompt.routing.different)} of ${
          count(prompt.routing.choices)} choices differ`);
    if (prompt.not_compared?.length > 0)
      notes.push(`not compared: ${prompt.not_compared.map(plain).join(', ')}`);
    return [
      [
        el('button', {type: 'button', class: 'link', click: () => choose(prompt.name)},
           plain(prompt.name)),
        notes.map((note) => el('span', {class: 'under'}, note))
      ],
      count(prompt.tokens), ...metricCells(prompt.metrics),
      verdict(prompt.parity, prompt.parity ? 'parity' : 'no parity')
    ];
  });
  return rows.length === 0 ?
      null :
      simpleTable('Prompts', ['Prompt', '#Tokens', ...metricHeads, 'Verdict'], rows);
}

// Shows the weights, programs and encodings that were made again from the checkpoint.
function derivedSection(report) {
  const names = {weights: 'Weights', programs: 'Programs', encodings: 'Encodings'};
  const parts = Object.keys(names).filter((key) => report[key]).map((key) => {
    const {compared, equal, bytes: size, different = []} = report[key];
    const number = absent(compared) ?
        '' :
        `${count(equal ?? compared - different.length)} of ${count(compared)} equal` +
            (absent(size) ? '' : `, ${count(size)} bytes compared`);
    return el(
        'div', {}, el('h3', {}, names[key]),
        el('p', {},
           verdict(
               different.length === 0,
               different.length === 0 ? `Equal. ${number}` :
                                        `${plural(different.length, 'difference')}. ${number}`)),
        different.length > 0 ?
            el('ul', {class: 'names'}, different.map((line) => el('li', {}, plain(line)))) :
            null);
  });
  return parts.length === 0 ? null :
                              section('derived', 'Made again from the checkpoint', null, parts);
}

// Shows an object of numbers and texts as a table, for values that have no chart.
function valuesSection(id, heading, value) {
  if (absent(value) || Object.keys(value).length === 0) return null;
  const text = (x) => typeof x === 'number' ? (Number.isInteger(x) ? count(x) : number(x)) :
      typeof x === 'object' && x !== null   ? plain(JSON.stringify(x)) :
                                              plain(x);
  return section(
      id, heading, null,
      simpleTable(
          heading, ['What', 'Value'],
          Object.entries(value).map(([name, x]) => [plain(name), text(x)])));
}

// The parts of the page that show one comparison and one prompt of it.
class Details {
  constructor(report) {
    this.comparisons = (report.comparisons ?? []).filter((comparison) => !isAbsent(comparison));
    this.shells = [];
    this.pickers = el('div', {class: 'toolbar'});
    this.add(
        'prompts', 'Prompts', null,
        (comparison) => promptsPart(comparison, (name) => this.choose({prompt: name})));
    this.add('layers', 'Layers', 'The worst over prompts, in model order.', layersPart);
    this.add(
        'positions', 'Positions',
        'A strong column is one bad position, such as a mask or a rotation. A strong row and all ' +
            'below it is a bad layer.',
        (comparison, prompt) => prompt && heatPart(prompt));
    this.add(
        'histogram', 'Histogram', 'How large the differences of the output are.',
        (comparison, prompt) => prompt && histogramPart(prompt, outputOf(comparison)));
    this.add(
        'candidates', 'Likeliest tokens', 'The reference and ours side by side.',
        (comparison, prompt) => prompt && candidatesPart(prompt));
    this.add(
        'continuation', 'Continuation', 'What each side chooses, token by token.',
        (comparison, prompt) => prompt && greedyPart(prompt));
    state.onMove(() => this.show());
  }

  add(id, heading, lead, draw) {
    const place = el('div', {class: 'stack'});
    this.shells.push({
      shell: section(id, heading, lead, id === 'prompts' ? this.pickers : null, place),
      place,
      draw
    });
  }

  // Returns the comparison in the address, else the first one that fails, else the one of the
  // outputs.
  comparison() {
    const all = this.comparisons;
    return all.find((c) => c.id === state.get('comparison')) ??
        all.find((c) => c.parity === false) ?? all.find((c) => c.id === 'outputs') ?? all[0];
  }

  prompt(comparison) {
    const all = (comparison.prompts ?? []).filter((prompt) => !isSkipped(prompt));
    return all.find((p) => p.name === state.get('prompt')) ?? all.find((p) => p.parity === false) ??
        all[0];
  }

  choose(values) {
    for (const [key, value] of Object.entries(values)) state.set(key, value);
    this.show();
  }

  show() {
    if (this.comparisons.length === 0) return;
    const comparison = this.comparison();
    const prompt = this.prompt(comparison);
    this.fillPickers(comparison, prompt);
    for (const {shell, place, draw} of this.shells) {
      const nodes = [draw(comparison, prompt)].flat(Infinity).filter((node) => node);
      place.replaceChildren(...nodes);
      shell.hidden = nodes.length === 0;
      if (shell.link) shell.link.hidden = shell.hidden;
    }
  }

  fillPickers(comparison, prompt) {
    const picker = (label, key, options, chosen) => options.length < 2 ?
        null :
        el('label', {class: 'picker'}, label,
           el('select', {change: (event) => this.choose({[key]: event.target.value})},
              options.map(
                  ([value, text]) => el('option', {value, selected: value === chosen}, text))));
    const prompts =
        (comparison.prompts ?? []).filter((p) => !isSkipped(p)).map((p) => [p.name, plain(p.name)]);
    this.pickers.replaceChildren(
        ...[picker(
                'Comparison', 'comparison', this.comparisons.map((c) => [c.id, plain(c.title)]),
                comparison.id),
            picker('Prompt', 'prompt', prompts, prompt?.name)]
            .filter(Boolean));
  }
}

function buildPage(report) {
  const details = new Details(report);
  const choose = (id) => {
    details.choose({comparison: id});
    document.getElementById('prompts').scrollIntoView();
  };
  const sections = [
    comparedSection(report), comparisonsSection(report, choose),
    ...(details.comparisons.length > 0 ? details.shells.map(({shell}) => shell) : []),
    derivedSection(report), valuesSection('quantization', 'Quantisation', report.quantization),
    valuesSection('pixels', 'Pixels', report.pixels),
    valuesSection('perplexity', 'Perplexity', report.perplexity)
  ];
  const {bundle = {}} = report;
  return {
    name: plain(bundle.name ?? ''),
    what: 'Parity report',
    verdict: verdictBanner(report),
    facts: [bundle.model_type, bundle.weight_dtype, bundle.quantization]
               .filter(Boolean)
               .map(plain)
               .join(' · '),
    tiles: parityTiles(report),
    sections,
    then: () => details.show()
  };
}
