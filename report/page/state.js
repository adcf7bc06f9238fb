// The state of the view. The fragment of the address holds it (#zoom=...&find=...), so that a view
// can be linked to, reloaded, and left with the browser's Back button.

const state = {
  values: new URLSearchParams(location.hash.slice(1)),
  listeners: [],

  get(key, otherwise = '') { return this.values.get(key) ?? otherwise; },

  // `step` adds an entry to the history, to which Back returns; without it the present entry is
  // replaced.
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
  // A plain fragment (#items) is the address of a section and holds no state.
  if (location.hash.length > 1 && !location.hash.includes('=')) return;
  state.values = new URLSearchParams(location.hash.slice(1));
  state.listeners.forEach((listener) => listener());
}
addEventListener('popstate', readAddress);
addEventListener('hashchange', readAddress);
