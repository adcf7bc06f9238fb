// Where the reader is. The fragment of the address holds it (#zoom=...&find=...), so that a view
// can be linked to, reloaded, and left by the browser's Back.

const state = {
  values: new URLSearchParams(location.hash.slice(1)),
  listeners: [],

  get(key, otherwise = '') { return this.values.get(key) ?? otherwise; },

  // `step` makes an entry that Back returns from; without it the present one is replaced.
  set(key, value, step = false) {
    if (this.get(key) === value) return;
    if (value === '')
      this.values.delete(key);
    else
      this.values.set(key, value);
    const address = `#${this.values}`;
    if (step)
      history.pushState(null, '', address);
    else
      history.replaceState(null, '', address);
  },

  onMove(listener) { this.listeners.push(listener); },
};

function readAddress() {
  if (location.hash.slice(1) === String(state.values)) return;
  // A plain fragment (#items) is the address of a section and no state.
  if (location.hash.length > 1 && !location.hash.includes('=')) return;
  state.values = new URLSearchParams(location.hash.slice(1));
  state.listeners.forEach((listener) => listener());
}
addEventListener('popstate', readAddress);
addEventListener('hashchange', readAddress);
