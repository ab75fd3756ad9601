// SPDX-License-Identifier: MIT OR Apache-2.0
// Highlights the series under the pointer in the plot and in the table of its figure.
for (const figure of document.querySelectorAll('figure')) {
  const choose = event => {
    const over = event.target.closest('[data-series]');
    figure.classList.toggle('chosen', Boolean(over));
    for (const part of figure.querySelectorAll('[data-series]')) {
      part.classList.toggle('hot', Boolean(over) && part.dataset.series === over.dataset.series);
    }
  };
  figure.addEventListener('pointerover', choose);
  figure.addEventListener('pointerleave', choose);
}
