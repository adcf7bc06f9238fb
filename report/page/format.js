// Formats numbers and names. Tables show exact bytes, sentences show decimal units.

const groups = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});
const minus = '−';

const absent = (value) => value === undefined || value === null;
const count = (n) => absent(n) ? '' : groups.format(n).replace('-', minus);
const plural = (n, noun, nouns = `${noun}s`) => `${count(n)} ${n === 1 ? noun : nouns}`;

function bytes(n) {
  if (absent(n)) return '';
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let size = Math.abs(n);
  let unit = 0;
  while (size >= 999.5 && unit + 1 < units.length) {
    size /= 1000;
    ++unit;
  }
  const digits = unit === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return `${n < 0 ? minus : ''}${size.toFixed(digits)} ${units[unit]}`;
}

const signed = (n, text) => n > 0 ? `+${text}` : text;
const signedCount = (n) => absent(n) ? '' : signed(n, count(n));
const signedBytes = (n) => absent(n) ? '' : signed(n, bytes(n));

function percent(part, whole) {
  if (!part || !whole) return '';
  const share = 100 * part / whole;
  if (share !== 0 && Math.abs(share) < 0.01) return share > 0 ? '< 0.01 %' : '> −0.01 %';
  return `${share.toFixed(2).replace('-', minus)} %`;
}

// Documents contain the largest f64 number instead of NaN and infinity.
const isNotFinite = (x) => Math.abs(x) >= 1e300;

// Formats three significant figures, with an exponent if the number would have many zeros.
function number(x) {
  if (absent(x)) return '';
  if (typeof x !== 'number') return String(x);
  if (x === 0) return '0';
  const size = Math.abs(x);
  if (isNotFinite(x)) return 'not finite';
  const text = size >= 1e5 || size < 1e-2 ? x.toExponential(2) :
      size >= 100                         ? x.toFixed(1) :
                                            x.toPrecision(3);
  return text.replaceAll('-', minus);
}

// The ratio in decibels that verify reports for equal values.
const equalDecibels = 999;
function decibels(x) {
  if (absent(x)) return '';
  if (isNotFinite(x)) return 'not finite';
  return x >= equalDecibels ? 'equal' : `${number(x)} dB`;
}

const cosineText = (x, digits) => absent(x) ? '' :
    isNotFinite(x)                          ? 'not finite' :
                                              x.toFixed(digits);
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function seconds(s) {
  if (absent(s)) return '';
  if (s < 0.0995) return `${Math.round(1000 * s)} ms`;
  if (s < 59.95) return `${s < 9.95 ? s.toFixed(2) : s.toFixed(1)} s`;
  const whole = Math.round(s);
  const two = (n) => String(n).padStart(2, '0');
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor(whole % 3600 / 60))} min`;
}

// Escapes characters that are invisible or change the direction of the line, because a name must
// not look like another one.
function plain(text) {
  if (/^[ -~]*$/.test(text)) return String(text);  // fast path for most names
  return String(text).replace(
      /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// Formats the text of a token. Blanks and line ends are shown too.
function tokenText(text) {
  const marks = {' ': '␣', '\n': '⏎', '\t': '⇥', '\r': '␍'};
  return plain(String(text).replace(/[ \n\t\r]/g, (c) => marks[c]));
}

const shapeText = (shape) => Array.isArray(shape) && shape.length > 0 ? shape.join(' × ') : '';
