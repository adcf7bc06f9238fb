// Builds the page after all other scripts have been loaded.

function footer() {
  const maker = document.querySelector('meta[name=generator]').content;
  const raw =
      el('details', {class: 'fold'}, el('summary', {}, 'The numbers of this page as JSON'),
         el('pre', {tabindex: '0'}));
  raw.addEventListener('toggle', () => {
    if (!raw.open) return;
    const text = document.getElementById('data').textContent;
    raw.querySelector('pre').textContent = plainLines(JSON.stringify(JSON.parse(text), null, 1));
  });
  return el(
      'footer', {}, raw, el('p', {}, `Made by ${maker}. This file is complete and loads nothing.`));
}

// Escapes like plain(), but keeps line ends.
const plainLines = (text) => text.split('\n').map(plain).join('\n');

function layOut(page) {
  const parts = page.sections.filter((part) => part !== null);
  for (const part of parts) {
    // The link only scrolls, because the address holds the state of the page.
    const go = (event) => {
      event.preventDefault();
      part.scrollIntoView();
      part.querySelector('h2').focus();
    };
    part.link = el('a', {href: `#${part.id}`, click: go}, part.querySelector('h2').textContent);
  }
  const links = parts.map((part) => part.link);
  parts.forEach((part) => part.querySelector('h2').setAttribute('tabindex', '-1'));
  return [
    el('header', {}, el('p', {class: 'what'}, page.what), el('h1', {}, page.name),
       page.facts ? el('p', {class: 'facts'}, page.facts) : null),
    page.verdict, page.tiles,
    parts.length > 1 ? el('nav', {class: 'places', 'aria-label': 'Sections'}, links) : null,
    ...parts, footer()
  ].filter((part) => part);
}

function start() {
  const place = document.getElementById('page');
  try {
    const page = buildPage(JSON.parse(document.getElementById('data').textContent));
    place.replaceChildren(...layOut(page), tip.node);
    page.then?.();
  } catch (error) {
    place.append(
        el('p', {class: 'remark', role: 'alert'},
           `The numbers of this page could not be shown (${
               plain(error.message)}). They are in the element "data" of this file.`));
    throw error;
  }
  // For tests: the time from opening the file to the end of this script, and to the first picture
  // after it.
  const page = document.documentElement.dataset;
  page.builtMs = performance.now().toFixed(0);
  requestAnimationFrame(() => setTimeout(() => {
                          page.readyMs = performance.now().toFixed(0);
                        }));
}
start();
