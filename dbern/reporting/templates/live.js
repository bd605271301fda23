"use strict";
// Values and masses from released numbers, by the formulas of dbern.reporting.live.
Bokeh.require("core/logging").logger.set_level("warn");
document.addEventListener("DOMContentLoaded", async () => {
  const find = (name) => document.getElementById(name);
  const facts = JSON.parse(find("live-facts").textContent);
  const root = find("live");
  const bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer;
  const axes = facts.axes, cells = facts.places;
  const released = facts.released.map((one) => new Float64Array(bytes(one)));
  const widths = new Float32Array(bytes(facts.widths));
  const matrices = facts.matrices.map((one) => new Float64Array(bytes(one)));
  const ends = (i) => [axes[i].low, axes[i].high - axes[i].low];
  const state = {
    group: 0, stop: Number(root.dataset.start),
    box: axes.map((_, i) => [0.3, 0.7].map((part) => ends(i)[0] + part * ends(i)[1])),
  };

  // C(k, v) y^v (1 - y)^(k - v) for all v, from the nearer end.
  const basis = (y, k) => {
    const near = Math.min(y, 1 - y), found = new Float64Array(k + 1);
    found[0] = (1 - near) ** k;
    for (let v = 0; v < k; v++) found[v + 1] = found[v] * ((k - v) / (v + 1)) * (near / (1 - near));
    return y > 0.5 ? found.reverse() : found;
  };
  const times = (row, matrix, columns) => {
    const found = new Float64Array(columns);
    row.forEach((one, v) => { for (let j = 0; j < columns; j++) found[j] += one * matrix[v * columns + j]; });
    return found;
  };
  const matrix = (i) => matrices[facts.stops[state.stop].matrices[i]];
  const degree = (i) => matrix(i).length / facts.shape[i] - 1;
  const weights = (i, y) => times(basis(y, degree(i)), matrix(i), facts.shape[i]);
  // The integral of the basis from 0 to y: (b_{v+1,k+1} + .. + b_{k+1,k+1}) / (k + 1).
  const below = (i, y) => {
    const k = degree(i), next = basis(y, k + 1), found = new Float64Array(k + 1);
    for (let v = k, tail = 0; v >= 0; v--) found[v] = (tail += next[v + 1]) / (k + 1);
    return times(found, matrix(i), facts.shape[i]);
  };
  const between = (i, low, high) => {
    const ends = below(i, low);
    return below(i, high).map((one, j) => one - ends[j]);
  };
  // Sums over one axis of a tensor with each of several rows of weights.
  const along = (values, shape, axis, rows) => {
    const own = shape[axis], after = shape.slice(axis + 1).reduce((a, b) => a * b, 1);
    const before = values.length / own / after, found = new Float64Array(before * rows.length * after);
    for (let b = 0; b < before; b++) rows.forEach((row, m) => {
      const to = (b * rows.length + m) * after;
      for (let j = 0; j < own; j++) {
        const from = (b * own + j) * after, one = row[j];
        for (let a = 0; a < after; a++) found[to + a] += one * values[from + a];
      }
    });
    return found;
  };
  const sums = (rows) => {
    let values = released[state.group], shape = [...facts.shape];
    rows.forEach((own, i) => { values = along(values, shape, i, own); shape[i] = own.length; });
    return values;
  };

  const share = (i, place) => Math.min(1, Math.max(0, (place - ends(i)[0]) / ends(i)[1]));
  // To a place for which the page has weights.
  const snapped = (i, place) => {
    const [low, size] = ends(i), part = share(i, place);
    const near = (facts.counting?.steps[i].places ?? [part]).reduce((best, one) => (Math.abs(one - part) < Math.abs(best - part) ? one : best));
    return low + near * size;
  };
  const mass = () => facts.volume * sums(axes.map((_, i) => [between(i, ...state.box[i].map((end) => share(i, end)))]))[0];
  const grid = () => {
    const middles = Array.from({ length: cells }, (_, j) => (j + 0.5) / cells);
    return { middles, values: sums(axes.map((_, i) => middles.map((y) => weights(i, y)))) };
  };

  // The share of the rows in a box: dbern.synopsis.questions.measure, many_boxes and quotients.
  const counting = facts.counting;
  const side = (i, place, name) => {
    const at = counting.steps[i].places.reduce((best, one, j, all) => Math.abs(one - place) < Math.abs(all[best] - place) ? j : best, 0);
    const size = facts.shape[i];
    return matrices[counting.steps[i][name]].subarray(at * size, (at + 1) * size);
  };
  const inside = (i, ends, high, low) => side(i, ends[1], high).map((one, j) => one - side(i, ends[0], low)[j]);
  const total = (values) => values.reduce((a, b) => a + b, 0);
  const over = (terms, of) => terms.reduce((sum, [rows, part]) => sum + part * rows.reduce((all, row) => all * of(row), 1), 0);
  const rows = () => {
    const ends = state.box.map((pair, i) => pair.map((end) => share(i, end)));
    const [upper, near, lower] = [["high", "low"], ["near", "near"], ["low", "high"]].map(([a, b]) => ends.map((pair, i) => inside(i, pair, a, b)));
    const below = upper.map((_, turn) => [upper.map((row, i) => (i === turn ? lower[i] : row)), 1]);
    if (axes.length > 1) below.push([upper, 1 - axes.length]);
    const values = released[state.group], count = values.length, [q, loose] = counting.tails[state.group];
    const value = (terms) => terms.reduce((sum, [own, part]) => sum + part * sums(own.map((row) => [row]))[0], 0) / counting.unit;
    const base = total(values) / counting.unit;
    const error = counting.errors[state.group] + 1e-12 * values.reduce((a, b) => Math.max(a, Math.abs(b)), 0) / counting.unit;
    const end = (terms, sign, whole) => {
      const sizes = terms.map(([own, part]) => [own.map((row) => row.map(Math.abs)), Math.abs(part)]);
      const largest = 1 + over(sizes, (row) => row.reduce((a, b) => Math.max(a, b), 0));
      const top = value(terms) + sign * (loose * largest + error * (count + over(sizes, total)));
      const square = total(terms.flatMap(([one, a]) => terms.map(([other, b]) => a * b * one.reduce((all, row, i) => all * total(row.map((x, j) => x * other[i][j])), 1))));
      const [by, mixed, own] = whole ? [base, over(terms, total), count] : [1, 0, 0];
      const [a, b, c] = [by ** 2 - q ** 2 * own, top * by - q ** 2 * mixed, top ** 2 - q ** 2 * square];
      const found = by > 0 && a > 0 ? (b + sign * Math.sqrt(Math.max(b ** 2 - a * c, 0))) / a : sign * Infinity;
      return Math.min(1, Math.max(0, found));
    };
    const middle = value([[near, 1]]);
    const answered = (guess, whole) => {
      const low = end(below, -1, whole), high = Math.max(low, end([[upper, 1]], 1, whole));
      return [Math.min(high, Math.max(low, guess)), low, high];
    };
    return { share: answered(base > 0 ? middle / base : 0.5, true), part: answered(middle, false) };
  };

  // The library's figures, in the colours of the page.
  let figures = null;
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const draw = async () => {
    const style = getComputedStyle(document.documentElement);
    const told = JSON.stringify(facts.document).replace(/#0102[0-9a-f]{2}/g, (one) => style.getPropertyValue(facts.colours[one]).trim());
    const content = JSON.parse(told), roots = {};
    content.roots.forEach((one) => {
      const place = find("live-" + one.attributes.name);
      place.replaceChildren();
      roots[one.id] = place;
    });
    await Bokeh.embed.embed_items({ page: content }, [{ docid: "page", roots, root_ids: Object.keys(roots) }]);
    figures = Bokeh.documents.at(-1).roots();
    for (const one of figures) {
      one.on_event("selectiongeometry", (event) => {
        const { x0, x1, y0, y1 } = event.geometry;
        const sides = [[x0, x1], [y0, y1]].slice(0, axes.length);
        state.box = sides.map((pair, i) => pair.map((end) => snapped(i, end / axes[i].scale)).sort((a, b) => a - b));
        answer();
      });
    }
    fit();
    fill();
    answer();
  };
  const named = (name) => figures[0].document.get_model_by_name(name);
  const fill = () => {
    const { middles, values } = grid(), source = named("cells");
    const size = values.length, width = widths.slice(state.group * size, (state.group + 1) * size);
    if (axes.length === 1) {
      const [axis] = axes;
      const low = [...values].map((one, j) => one - width[j]), high = [...values].map((one, j) => one + width[j]);
      const [least, most] = [Math.min(0, ...low), Math.max(...high)];
      named("heights").setv({ start: least, end: most + 0.05 * (most - least) });
      source.data = {
        x: middles.map((y) => (axis.low + y * ends(0)[1]) * axis.scale), value: [...values], width: [...width],
        low, high,
      };
      return;
    }
    const turned = (from) => {  // rows of an image run along the first axis
      const found = new Float64Array(size);
      for (let i = 0; i < cells; i++) for (let j = 0; j < cells; j++) found[j * cells + i] = from(i * cells + j);
      return [Bokeh.require("core/util/ndarray").ndarray(found.buffer, { dtype: "float64", shape: [cells, cells] })];
    };
    source.data = { image: turned((at) => values[at]), width: turned((at) => width[at]), ratio: turned((at) => values[at] / width[at]) };
    const palette = facts.palettes[scheme.matches ? "dark" : "light"];
    named("value-colours").setv({ palette, low: values.reduce((a, b) => Math.min(a, b), 0), high: values.reduce((a, b) => Math.max(a, b), 0) });
    const most = source.data.ratio[0].reduce((a, b) => Math.max(a, b), 10);
    named("ratio-colours").setv({ palette, high: most });
  };
  const fit = () => figures.forEach((one) => {
    const room = find("live-" + one.name).clientWidth - 100;
    one.setv({ frame_width: room, frame_height: Math.round(room * Number(root.dataset.ratio)) });
  });
  // Percent and rows, to the digits that the error leaves.
  const rounded = (number, error) => {
    const digits = Math.min(12, Math.max(0, 1 - Math.floor(Math.log10(error || 1))));
    return [number, error].map((one) => one.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replaceAll(",", "\u202f"));
  };
  const answer = () => {
    const found = mass(), error = facts.band * state.box.reduce((size, [low, high]) => size * (high - low), 1);
    figures.forEach((one) => {
      const [x, y] = state.box.map((pair, i) => pair.map((end) => end * axes[i].scale));
      const boxes = one.center.filter((part) => part.tags.includes("box"));
      for (const part of boxes) part.setv({ left: x[0], right: x[1], ...(y ? { bottom: y[0], top: y[1] } : {}) });
    });
    if (counting) {
      const found = rows(), told = (numbers, unit) => {
        const [value, low, high] = numbers.map((one) => rounded(one, Math.max((numbers[2] - numbers[1]) / 2, 1e-9))[0]);
        return `${value}${unit}, from ${low} to ${high}${unit}`;
      };
      find("live-records").textContent = told(found.share.map((one) => 100 * one), " %");
      find("live-count").textContent = told(found.part.map((one) => counting.rows * one), " rows");
      Object.assign(find("live-records").dataset, { share: JSON.stringify(found.share), part: JSON.stringify(found.part) });
    }
    const shown = rounded(100 * found, 100 * error);
    find("live-mass").textContent = `${shown[0]} % ± ${shown[1]} %`;
    Object.assign(find("live-mass").dataset, { value: found, error, box: JSON.stringify(state.box) });
    state.box.forEach((pair, i) => pair.forEach((end, which) => {
      const field = find(`live-${which ? "high" : "low"}-${i}`);
      if (field === document.activeElement) return;
      const [, size] = ends(i), digits = Math.max(0, 3 - Math.floor(Math.log10(size)));
      if (field.type === "number") field.value = end.toFixed(Math.min(12, digits));
      else field.valueAsNumber = Math.round(end * axes[i].scale / 1000) * 1000;
    }));
  };
  axes.forEach((axis, i) => ["low", "high"].forEach((name, which) => find(`live-${name}-${i}`).addEventListener("input", (event) => {
    const place = event.target.valueAsNumber / (event.target.type === "number" ? 1 : axis.scale);
    if (!Number.isFinite(place)) return;
    state.box[i][which] = snapped(i, place);
    answer();
  })));
  find("live-stop")?.addEventListener("input", (event) => {
    state.stop = Number(event.target.value);
    find("live-bandwidth").textContent = facts.stops[state.stop].name;
    fill();
    answer();
  });
  find("live-group")?.addEventListener("change", (event) => {
    state.group = Number(event.target.value);
    fill();
    answer();
  });
  document.documentElement.classList.add("answers");
  state.box = state.box.map((pair, i) => pair.map((end) => snapped(i, end)));
  await draw();
  scheme.addEventListener("change", draw);
  addEventListener("resize", fit);
  root.dataset.ready = Math.round(performance.now());
});
