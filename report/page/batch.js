// The page of a batch. docs/batch.md describes the document.

const stateOrder = ['done', 'changed', 'running', 'failed', 'interrupted', 'waiting'];
const stateTone = {
  done: 'good',
  failed: 'bad',
  interrupted: 'warn',
  changed: 'other',
  running: 'run',
  waiting: 'quiet'
};

// Draws one bar for all tasks, divided by state.
function stateBar(counts, total) {
  const states = stateOrder.filter((name) => counts[name] > 0);
  const parts = states.map((name) => {
    const part =
        el('span', {class: `part ${stateTone[name]}`, title: `${name}: ${count(counts[name])}`});
    part.style.flexGrow = String(counts[name] / total);
    return part;
  });
  return [
    el('div', {class: 'state-bar', 'aria-hidden': 'true'}, parts),
    stateLegend(states, (name) => `${name} ${count(counts[name])}`)
  ];
}

const stateLegend = (states, text) =>
    el('div', {class: 'keys chart-keys'},
       states.map(
           (name) =>
               el('span', {class: 'key'},
                  el('span', {class: `swatch part ${stateTone[name]}`, 'aria-hidden': 'true'}),
                  text(name))));

// The legend of the bars' colours.
const stateKeys = (tasks) => stateLegend(
    stateOrder.filter((name) => tasks.some((task) => task.state === name)), (name) => name);

function batchTiles(batch) {
  const {counts, totals, plan, complete} = batch;
  const parity = totals.parity ?? {};
  const asked = (parity.proven ?? 0) + (parity.failed ?? 0);
  const wall = totals.start && totals.end ?
      (Date.parse(totals.end) - Date.parse(totals.start)) / 1000 :
      undefined;
  return el(
      'dl', {class: 'tiles'},
      tile(
          'Done', `${count(counts.done ?? 0)} / ${count(plan.tasks)}`,
          complete ? 'the batch is complete' : 'the batch is not complete',
          complete ? 'good' : 'warn'),
      tile(
          'Failed', count(counts.failed ?? 0),
          plural(batch.failures?.length ?? 0, 'kind of failure', 'kinds of failure'),
          counts.failed > 0 ? 'bad' : null),
      asked > 0 ? tile(
                      'Parity', `${count(parity.proven)} / ${count(asked)}`,
                      `proven; ${count(parity.not_asked ?? 0)} not asked for`,
                      parity.failed > 0 ? 'bad' : 'good') :
                  null,
      tile('Written', bytes(totals.output_bytes), `from ${bytes(totals.input_bytes)}`),
      tile(
          'Time', seconds(wall ?? totals.seconds),
          `${seconds(totals.processor_seconds)} of processors, ${
              plural(totals.attempts, 'attempt')}`),
      tile('Memory', bytes(totals.max_rss_bytes), 'the most of any process'));
}

function failuresSection(batch) {
  const failures = batch.failures ?? [];
  if (failures.length === 0) return null;
  const rows =
      [...failures]
          .sort((a, b) => b.tasks.length - a.tasks.length)
          .map(
              (failure) =>
                  [el('span', {class: 'tag failed'}, failure.class || 'unknown'),
                   count(failure.tasks.length), absent(failure.exit) ? '' : String(failure.exit), [
                     plain(failure.message),
                     el('details', {}, el('summary', {}, plural(failure.tasks.length, 'task')),
                        el('ul', {class: 'names'},
                           failure.tasks.map((id) => el('li', {}, plain(id)))))
                   ]]);
  return section(
      'failures', 'Failures', 'Grouped by what went wrong.',
      simpleTable('Failures', ['Class', '#Tasks', '#Exit', 'Message'], rows));
}

const rateOf = (task) =>
    task.seconds > 0 && task.input_bytes > 0 ? task.input_bytes / task.seconds : undefined;

function tasksTable(batch) {
  const parity = (task, key) => task.parity?.[key] ?? undefined;
  const verdictOf = (task) => !task.parity ? '' : task.parity.parity ? 'parity' : 'no parity';
  const figure = (key, label, text, value = (task) => task[key]) => ({
    key,
    label,
    numeric: true,
    value,
    text: (task) => {
      const x = value(task);
      return absent(x) || x === 0 ? '' : text(x);
    }
  });
  return new Table({
           id: 'tasks',
           label: 'Tasks',
           rows: batch.tasks,
           sort: 'index',
           summary: (rows) =>
               `${bytes(rows.reduce((sum, task) => sum + task.output_bytes, 0))} written`,
           columns: [
             {
               key: 'index',
               label: 'No.',
               numeric: true,
               value: (task) => task.index,
               text: (task) => String(task.index)
             },
             {
               key: 'id',
               label: 'Task',
               class: 'name',
               value: (task) => task.id,
               text: (task) => plain(task.id),
               cell: (task) =>
                   [plain(task.id),
                    el('span', {class: 'under'}, `${plain(task.input)} → ${plain(task.output)}`)]
             },
             {
               key: 'state',
               label: 'State',
               facet: true,
               value: (task) => task.state,
               cell: (task) => el('span', {class: `tag ${task.state}`}, task.state)
             },
             figure('attempts', 'Attempts', count), figure('seconds', 'Time', seconds),
             figure('input_bytes', 'In', bytes), figure('output_bytes', 'Out', bytes),
             figure('rate', 'Rate', (rate) => `${bytes(rate)}/s`, rateOf), {
               key: 'parity',
               label: 'Parity',
               facet: true,
               value: verdictOf,
               cell: (task) => task.parity ? verdict(task.parity.parity, verdictOf(task)) : ''
             },
             figure('sqnr', 'SQNR', decibels, (task) => parity(task, 'sqnr_db')),
             figure('max_abs', 'Max abs', number, (task) => parity(task, 'max_abs')), {
               key: 'class',
               label: 'Class',
               facet: true,
               class: 'reason',
               value: (task) => task.class,
               cell: (task) =>
                   [task.class,
                    task.message ? el('span', {class: 'under'}, plain(task.message)) : null]
             },
             {key: 'message', unseen: true, value: (task) => plain(task.message)}
           ]
         })
      .node;
}

// Every task has a bar of its own up to this number; beyond it only the largest tasks have one.
const mostBars = 240;

function tasksChart(tasks, valueOf, text, heading, unit, scaleOf) {
  const known = tasks.filter((task) => valueOf(task) > 0);
  if (known.length < 2) return null;
  const shown = [...known].sort((a, b) => valueOf(b) - valueOf(a)).slice(0, mostBars);
  const middle = [...known].sort((a, b) => valueOf(a) - valueOf(b))[known.length >> 1];
  const bars =
      shown.map((task, i) => ({
                  name: shown.length <= 24 ? cutTo(plain(task.id), 1090 / shown.length / 7 - 1) :
                                             String(i + 1),
                  value: valueOf(task),
                  tone: stateTone[task.state]
                }));
  const top = Math.max(...shown.map(valueOf));
  const whole = shown.length < known.length ?
      ` The ${count(shown.length)} largest of ${count(known.length)} are shown.` :
      '';
  return [
    el('h3', {}, heading),
    el('p', {class: 'lead'},
       `From ${text(Math.min(...known.map(valueOf)))} to ${text(top)}, ` +
           `half of the tasks up to ${text(valueOf(middle))}.${whole}`),
    stateKeys(shown), barChart({
      bars,
      scale: scaleOf(top),
      label: heading,
      yLabel: unit,
      xLabel: 'tasks, largest first',
      height: 230,
      details: (i) => ({
        title: plain(shown[i].id),
        rows: [['state', shown[i].state], [unit, text(valueOf(shown[i]))]]
      })
    })
  ];
}

const cutTo = (text, length) =>
    text.length <= length ? text : `${text.slice(0, Math.max(1, Math.floor(length) - 1))}…`;

// A scale whose marks have units that people read.
function unitScale(top, text) {
  return (from, to) => Object.assign(
             linearScale(0, top, from, to, 4),
             {text: (mark) => mark === 0 ? '0' : text(mark).replace(/\.0+ /, ' ')});
}

function chartsSection(batch) {
  const times = tasksChart(
      batch.tasks, (task) => task.seconds, seconds, 'Time of the last attempt', 'time',
      (top) => unitScale(top, seconds));
  const sizes = tasksChart(
      batch.tasks, (task) => task.output_bytes, bytes, 'Size of the bundle', 'bytes',
      (top) => unitScale(top, bytes));
  return times || sizes ? section('charts', 'Times and sizes', null, times, sizes) : null;
}

function hostsSection(batch) {
  const hosts = batch.hosts ?? [];
  if (hosts.length < 2) return null;
  return section(
      'hosts', 'Hosts', null,
      simpleTable(
          'Hosts', ['Host', '#Attempts', '#Time'],
          hosts.map((host) => [plain(host.name), count(host.attempts), seconds(host.seconds)])));
}

function buildPage(batch) {
  const {plan, totals} = batch;
  const name = plain(plan.path).split('/').pop();
  const span =
      totals.start ? `${plain(totals.start)} to ${plain(totals.end ?? '')}` : 'nothing was started';
  return {
    name,
    what: 'Batch report',
    facts: `${plural(plan.tasks, 'task')} · ${span}`,
    tiles: batchTiles(batch),
    sections: [
      section('states', 'States', null, stateBar(batch.counts, Math.max(1, plan.tasks))),
      failuresSection(batch), chartsSection(batch),
      section('tasks', 'Tasks', null, tasksTable(batch)), hostsSection(batch)
    ]
  };
}
