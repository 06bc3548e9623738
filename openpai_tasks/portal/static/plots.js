// Values of a plot under the pointer.

document.addEventListener("pointermove", (event) => {
  const figure = event.target.closest?.("[data-plot]");
  if (!figure) return;
  const svg = figure.querySelector("svg");
  const box = svg.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
  const y = ((event.clientY - box.top) / box.height) * svg.viewBox.baseVal.height;
  const best = nearest(figure, x, y);
  if (!best) return;
  const [name, [left, top, step, value]] = best;
  const pointer = figure.querySelector("[data-plot-pointer]");
  pointer.setAttribute("r", 4);
  pointer.setAttribute("cx", left);
  pointer.setAttribute("cy", top);
  const shown = `${Number(value.toPrecision(6))} at ${step}`;
  figure.querySelector("[data-plot-value]").textContent = name ? `${name}: ${shown}` : shown;
});

function nearest(figure, x, y) {
  let best = null;
  let least = Infinity;
  for (const [name, points] of JSON.parse(figure.dataset.plot)) {
    for (const point of points) {
      const distance = 4 * Math.abs(point[0] - x) + Math.abs(point[1] - y);
      if (distance < least) [least, best] = [distance, [name, point]];
    }
  }
  return best;
}
