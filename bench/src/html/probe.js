// SPDX-License-Identifier: MIT OR Apache-2.0
// Inspects the rendered page and stores the result in an element.
addEventListener('load', () => {
  const size = element => element.getBoundingClientRect();
  const plots = [...document.querySelectorAll('svg.plot')];
  const series = [...document.querySelectorAll('g.series')];
  const invisible = [];
  for (const plot of plots) {
    const { width, height } = size(plot);
    if (width < 250 || height < 80 || !plot.querySelector('.mark')) invisible.push(plot.getAttribute('aria-label'));
  }
  for (const one of series) {
    const { width, height } = size(one);
    const line = one.querySelector('.line');
    const drawn = line && line.getTotalLength() > 0 && getComputedStyle(line).stroke !== 'none';
    if (!(width > 0 || height > 0) || !drawn) invisible.push(one.querySelector('title').textContent);
  }
  const cut = plots.flatMap(plot => {
    const around = size(plot);
    return [...plot.querySelectorAll('text')]
      .filter(text => size(text).left < around.left - 1 || size(text).right > around.right + 1)
      .map(text => text.textContent);
  });
  const overlapping = plots.flatMap(plot => {
    const texts = [...plot.querySelectorAll('text')];
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    return texts
      .filter((text, number) => texts.slice(0, number).some(other => meet(size(text), size(other))))
      .map(text => text.textContent);
  });
  // Closed parts have no size.
  for (const details of document.querySelectorAll('details')) details.open = true;
  const scrolled = [...document.querySelectorAll('.scroll')]
    .filter(box => box.scrollWidth > box.clientWidth)
    .map(box => `${box.getAttribute('aria-label')}: ${box.scrollWidth} in ${box.clientWidth}`);
  const found = document.createElement('pre');
  found.id = 'findings';
  found.textContent = JSON.stringify({
    plots: plots.length,
    series: series.length,
    invisible,
    cut,
    overlapping,
    scrolled,
    width: innerWidth,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    dark: matchMedia('(prefers-color-scheme: dark)').matches,
  });
  document.body.append(found);
});
