// SPDX-License-Identifier: MIT OR Apache-2.0
// The line under the pointer, or that of the row under it, stands out among the others of its figure.
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
