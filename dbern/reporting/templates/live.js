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
  const arrays = facts.arrays.map((one) => new Float64Array(bytes(one)));
  const ends = (i) => [axes[i].low, axes[i].high - axes[i].low];
  const state = {
    group: 0, stop: Number(root.dataset.start), slice: Number(find("live-slice")?.value ?? 0),
    box: axes.map((_, i) => (i === 2 ? [0, 1] : [0.3, 0.7]).map((part) => ends(i)[0] + part * ends(i)[1])),
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
  const matrix = (i) => arrays[facts.matrices[i]];
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
    for (let i = rows.length - 1; i >= 0; i--) { values = along(values, shape, i, rows[i]); shape[i] = rows[i].length; }
    return values;
  };

  const share = (i, place) => Math.min(1, Math.max(0, (place - ends(i)[0]) / ends(i)[1]));
  // To a place for which the page has weights.
  const snapped = (i, place) => {
    const [low, size] = ends(i), part = share(i, place);
    const near = (facts.counting?.ends[i] ?? [part]).reduce((best, one) => (Math.abs(one - part) < Math.abs(best - part) ? one : best));
    return low + near * size;
  };
// Without bins: the integral of what was released, and of its band.
  const summed = () => {
    const value = facts.volume * sums(axes.map((_, i) => [between(i, ...state.box[i].map((end) => share(i, end)))]))[0];
    const error = facts.band * state.box.reduce((size, [low, high]) => size * (high - low), 1);
    return [value, Math.max(0, value - error), Math.min(1, value + error)];
  };

  // Intervals: dbern.synopsis.questions.measure, many_boxes and quotients.
  const counting = facts.counting;
  const total = (values) => values.reduce((a, b) => a + b, 0);
  const row = (i, table, at) => arrays[table].subarray(at * facts.shape[i], (at + 1) * facts.shape[i]);
  // What is told of products of rows of weights, one below, one near and one above on each axis:
  // for every choice of one place an axis. `whole`: as shares of all that count.
  const NAMES = ["low", "high", "gap"];
  const told = (sides, [q, loose], whole) => {
    sides = sides.map((one) => ({ ...one, gap: one.low.map((own, at) => own.map((low, j) => low - one.high[at][j])) }));
    const counts = sides.map((one) => one.near.length), size = counts.reduce((a, b) => a * b);
    const values = released[state.group], base = total(values) / counting.unit;
    const error = counting.errors[state.group] + 1e-12 * values.reduce((a, b) => Math.max(a, Math.abs(b)), 0) / counting.unit;
    const high = sides.map(() => "high"), upper = [[high, 1]];
    const lower = sides.map((_, turn) => [high.map((name, i) => (i !== turn ? name : turn === 0 ? "low" : "gap")), 1]);
    const each = (of) => sides.map((one) => Object.fromEntries(NAMES.map((name) => [name, one[name].map((own, at) => of(own, one, at))])));
    const sum = each(total), most = each((own) => own.reduce((a, b) => Math.max(a, Math.abs(b)), 0));
    const spread = each((own) => own.reduce((a, b) => a + Math.abs(b), 0));
    const dot = (a, b) => a.reduce((all, one, j) => all + one * b[j], 0);
    const products = Object.fromEntries(NAMES.map((other) => [other, each((own, one, at) => dot(own, one[other][at]))]));
    const end = (terms, sign) => {
      const tops = terms.map(([names]) => sums(names.map((name, i) => sides[i][name])));
      const over = (of, at, sizes) => terms.reduce((all, [names, part]) => all + (sizes ? Math.abs(part) : part) * names.reduce((one, name, i) => one * of[i][name][at[i]], 1), 0);
      return Float64Array.from({ length: size }, (_, place) => {
        const at = [];
        for (let i = counts.length - 1, rest = place; i >= 0; i--) { at[i] = rest % counts[i]; rest = Math.floor(rest / counts[i]); }
        let top = 0, square = 0;
        terms.forEach(([names, part], t) => {
          top += part * tops[t][place] / counting.unit;
          terms.forEach(([others, share]) => { square += part * share * names.reduce((all, name, i) => all * products[others[i]][i][name][at[i]], 1); });
        });
        top += sign * (loose * (1 + over(most, at, true)) + error * (values.length + over(spread, at, true)));
        const [by, mixed, own] = whole ? [base, over(sum, at, false), values.length] : [1, 0, 0];
        const [a, b, c] = [by ** 2 - q ** 2 * own, top * by - q ** 2 * mixed, top ** 2 - q ** 2 * square];
        const found = by > 0 && a > 0 ? (b + sign * Math.sqrt(Math.max(b ** 2 - a * c, 0))) / a : sign * Infinity;
        return Math.min(1, Math.max(0, found));
      });
    };
    const low = end(lower, -1), last = end(upper, 1), near = sums(sides.map((one) => one.near));
    const guess = near.map((one) => (whole ? (base > 0 ? one / counting.unit / base : 0.5) : one / counting.unit));
    const top = last.map((one, at) => Math.max(one, low[at]));
    return { value: guess.map((one, at) => Math.min(top[at], Math.max(low[at], one))), low, high: top };
  };
  // The box, by tables of what lies below each end.
  const inside = (tables, whole) => {
    const sides = state.box.map((pair, i) => {
      const [low, high] = pair.map((end) => counting.ends[i].findIndex((one) => Math.abs(one - share(i, end)) < 1e-9));
      const less = (a, b) => [row(i, tables[i][a], high).map((one, j) => one - row(i, tables[i][b], low)[j])];
      return { low: less("low", "high"), near: less("near", "near"), high: less("high", "low") };
    });
    const found = told(sides, counting.tails[state.group], whole);
    return [found.value[0], found.low[0], found.high[0]];
  };
  // All places at another bandwidth.
  const everywhere = (stop) => {
    const rows = (i, table) => (i === 2 ? [row(i, table, state.slice)] : Array.from({ length: cells }, (_, at) => row(i, table, at)));
    const sides = stop.values.map((one, i) => ({ low: rows(i, one.low), near: rows(i, one.near), high: rows(i, one.high) }));
    const { value, low, high } = told(sides, counting.everywhere[state.group], false);
    return { values: value.map((one) => stop.peak * one), width: value.map((one, at) => stop.peak * (high[at] - low[at]) / 2) };
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
        const sides = [[x0, x1], [y0, y1], state.box[2]?.map((end) => end * axes[2].scale)].slice(0, axes.length);
        state.box = sides.map((pair, i) => pair.map((end) => snapped(i, end / axes[i].scale)).sort((a, b) => a - b));
        answer();
        if (event.final) root.dataset.drags = Number(root.dataset.drags ?? 0) + 1;
      });
    }
    fit();
    fill();
    answer();
  };
  const named = (name) => figures[0].document.get_model_by_name(name);
  const fill = () => {
    const stop = counting?.stops[state.stop], size = cells ** Math.min(2, axes.length), source = named("cells");
    const middles = Array.from({ length: cells }, (_, j) => (j + 0.5) / cells);
    const drawn = () => ({
      values: sums(axes.map((_, i) => (i === 2 ? [middles[state.slice]] : middles).map((y) => weights(i, y)))),
      width: axes.length < 3 ? widths.subarray(state.group * size, (state.group + 1) * size) : new Float32Array(size).fill(facts.band),
    });
    const { values, width } = stop?.values.length ? everywhere(stop) : drawn();
    if (axes.length > 2) {
      const place = ends(2)[0] + middles[state.slice] * ends(2)[1], text = new Date(place * axes[2].scale);
      find("live-slice-name").textContent = axes[2].scale === 1 ? place.toPrecision(4) : text.toISOString().slice(0, 16).replace("T", " ");
    }
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
  // To the digits that the error leaves.
  const rounded = (number, error) => {
    const digits = Math.min(12, 1 - Math.floor(Math.log10(error || 1)));
    if (digits < 0) return rounded(Math.round(number * 10 ** digits) / 10 ** digits, 10);
    return number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replaceAll(",", "\u202f");
  };
  const answer = () => {
    figures.forEach((one) => {
      const [x, y] = state.box.map((pair, i) => pair.map((end) => end * axes[i].scale));
      const boxes = one.center.filter((part) => part.tags.includes("box"));
      for (const part of boxes) part.setv({ left: x[0], right: x[1], ...(y ? { bottom: y[0], top: y[1] } : {}) });
    });
    const said = (numbers, unit) => {
      const [value, low, high] = numbers.map((one) => rounded(one, Math.max((numbers[2] - numbers[1]) / 2, 1e-9)) + unit);
      return [value, `from ${low} to ${high}`];
    };
    const smoothed = counting ? inside(counting.stops[state.stop].masses, true) : summed();
    const percent = "\u202f%", [value, between] = said(smoothed.map((one) => 100 * one), percent);
    find("live-mass").textContent = value;
    find("live-between").textContent = between;
    Object.assign(find("live-mass").dataset, { found: JSON.stringify(smoothed), box: JSON.stringify(state.box) });
    if (counting) {
      const shares = inside(counting.steps, true), counts = inside(counting.steps, false).map((one) => counting.rows * one);
      find("live-records").textContent = said(shares.map((one) => 100 * one), percent).join(", ");
      find("live-count").textContent = said(counts, "").join(" rows, ");
      Object.assign(find("live-records").dataset, { shares: JSON.stringify(shares), counts: JSON.stringify(counts) });
    }
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
    find("live-bandwidth").textContent = counting.stops[state.stop].name;
    fill();
    answer();
  });
  find("live-slice")?.addEventListener("input", (event) => {
    state.slice = Number(event.target.value);
    fill();
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
  for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame); // it is laid out
  root.dataset.ready = Math.round(performance.now());
});
