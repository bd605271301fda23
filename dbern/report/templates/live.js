"use strict";
// Values and masses from released numbers, by the formulas of dbern.report.live.
Bokeh.require("core/logging").logger.set_level("warn");
document.addEventListener("DOMContentLoaded", async () => {
  const find = (name) => document.getElementById(name);
  const facts = JSON.parse(find("live-facts").textContent);
  const root = find("live");
  // Whole multiples of a unit, as differences, deflated: dbern.report.packing.
  const unpacked = async (packed) => {
    if (!packed) return null;
    const [unit, lag, turns, width, text] = packed, deflated = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
    const planes = new Uint8Array(await new Response(stream).arrayBuffer()), count = planes.length / width, values = new Float64Array(count);
    for (let plane = width - 1; plane >= 0; plane--) for (let at = 0; at < count; at++) values[at] = 256 * values[at] + planes[plane * count + at];
    for (let at = 0; at < count; at++) values[at] = values[at] % 2 ? -(values[at] + 1) / 2 : values[at] / 2;
    for (let turn = 0; turn < turns; turn++) for (let at = lag; at < count; at++) values[at] += values[at - lag];
    return values.map((one) => one * unit);
  };
  const axes = facts.axes, across = facts.across, cells = facts.places, each_unpacked = (all) => Promise.all(all.map(unpacked));
  const [released, answered, arrays, widths, [on_page]] = await Promise.all(
    [facts.released, facts.answered, facts.arrays, facts.bands.map((one) => one.widths), [facts.drawn]].map(each_unpacked),
  );
  const bands = facts.bands.map((one, group) => ({ cells: one.cells, widths: widths[group] }));
  const ends = (i) => [axes[i].low, axes[i].high - axes[i].low];
  const state = {
    group: 0, show: facts.shows[0], stop: Number(root.dataset.start), slice: Number(find("live-slice")?.value ?? 0),
    box: axes.map((_, i) => (i === 2 ? [0, 1] : [0.3, 0.7]).map((part) => ends(i)[0] + part * ends(i)[1])),
  };

  // C(k, v) y^v (1 - y)^(k - v) for all v, from the nearer end; hats where the function is linear.
  const basis = (y, k) => {
    if (facts.linear) {
      const hats = new Float64Array(k + 1), at = Math.min(k - 1, Math.floor(y * k));
      hats.set([1 - (y * k - at), y * k - at], at);
      return hats;
    }
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
  // Of coefficients; of bins by the matrix to these.
  const weights = (i, y) => {
    const matrix = arrays[facts.matrices[i]], size = facts.shape[i];
    return matrix ? times(basis(y, matrix.length / size - 1), matrix, size) : basis(y, size - 1);
  };
  // The integral of the basis from 0 to y: (b_{v+1,k+1} + .. + b_{k+1,k+1}) / (k + 1). Pages without bins use it, and have no hats.
  const below = (i, y) => {
    const k = facts.shape[i] - 1, next = basis(y, k + 1), found = new Float64Array(k + 1);
    for (let v = k, tail = 0; v >= 0; v--) found[v] = (tail += next[v + 1]) / (k + 1);
    return found;
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
  const sums = (values, rows) => {
    let shape = [...facts.shape];
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
  // Sums over a normalizer may be above 1 where the number of rows is private.
  const mostRows = facts.private ? Infinity : 1;
  // Without bins: the integral of what was released, and of its band.
  const summed = () => {
    const value = facts.volume * sums(released[state.group], axes.map((_, i) => [between(i, ...state.box[i].map((end) => share(i, end)))]))[0];
    const error = facts.summed * state.box.reduce((size, [low, high]) => size * (high - low), 1);
    return [value, Math.max(0, value - error), Math.min(mostRows, value + error)];
  };

  // Intervals: dbern.ask, interval.py and bins.py.
  const counting = facts.counting, parts = counting?.parts;
  const most = (values) => values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  const spread = (values) => values.reduce((a, b) => a + Math.abs(b), 0);
  const dot = (a, b) => a.reduce((all, one, j) => all + one * b[j], 0);
  const plus = (a, b) => a.map((one, at) => one + b[at]);
  // Sums of what each released array tells, so many times each.
  const mixed = (arrays, times) => arrays.map((values, g) => values.map((one) => times[g] * one)).reduce(plus);
  const row = (i, table, at) => arrays[table].subarray(at * facts.shape[i], (at + 1) * facts.shape[i]);
  const ofAll = (of) => axes.reduce((product, _, i) => product * of(row(i, counting.all[i], 0)), 1);
  // Of weights that are products of rows, one low, one near and one high an axis, for every choice of a place on each.
  const known = (given) => {
    const sides = given.map((one) => ({ ...one, gap: one.low.map((own, at) => own.map((low, j) => low - one.high[at][j])) }));
    const high = sides.map(() => "high"), terms = { near: [sides.map(() => "near")], high: [high] };
    terms.low = sides.map((_, turn) => high.map((name, i) => (i !== turn ? name : turn === 0 ? "low" : "gap")));
    const outer = (rows) => rows.reduce((found, own) => Float64Array.from({ length: found.length * own.length }, (_, at) => found[Math.floor(at / own.length)] * own[at % own.length]), [1]);
    const over = (end, of) => terms[end].map((names) => outer(sides.map((one, i) => one[names[i]].map((own) => of(own, i))))).reduce(plus);
    const square = (end) => terms[end].flatMap((names) => terms[end].map((others) => outer(sides.map((one, i) => one[names[i]].map((own, at) => dot(own, one[others[i]][at])))))).reduce(plus);
    const side = (end) => ({
      of: (times) => {
        const values = mixed(released, times);
        return terms[end].map((names) => sums(values, sides.map((one, i) => one[names[i]]))).reduce(plus);
      },
      ...(end === "near" ? {} : { sum: over(end, (own, i) => dot(own, row(i, counting.all[i], 0))), most: over(end, most), spread: over(end, spread), square: square(end) }),
    });
    return { low: side("low"), near: side("near"), high: side("high") };
  };
  // Where ``top - m base`` is not denied: the first m (sign -1), or the last (1), from 0 to `maximum`.
  const end = (sign, maximum, [q, loose], [top, base, square, mixed, own, largest, error]) => {
    const moved = top + sign * (loose * largest + error);
    const a = base ** 2 - q ** 2 * own, b = moved * base - q ** 2 * mixed, c = moved ** 2 - q ** 2 * square;
    if (!(base > 0 && a > 0)) return sign > 0 ? maximum : 0;
    return Math.min(maximum, Math.max(0, (b + sign * Math.sqrt(Math.max(b ** 2 - a * c, 0))) / a));
  };
  // What weights tell, with the tail of that name: the "share" of all that count, of a public number of "rows" or the normalizer,
  // or what the "part" of a group, or of the response, is of all there.
  const told = (weights, what, tail, group = state.group) => {
    const { low, near, high } = weights, part = what === "part";
    const whole_rows = released.map(() => 1), mine = parts?.response && !part ? whole_rows : released.map((_, g) => Number(g === group));
    const rest = mine.map((one) => 1 - one), own = mixed(released, mine), others = part && mixed(released, rest);
    const whole = sums(own, axes.map((_, i) => [row(i, counting.all[i], 0)]))[0], least = 1e-12 * Math.max(most(own), part ? most(others) : 0);
    const error = (part ? 2 * parts.error : counting.errors[group]) + least;
    const lines = (one, other) => {
      const top = one.of(mine), left = part && other.of(rest);
      if (part) {
        const { squares, largest } = parts, both = (a, b, [x, y]) => a * x + b * y;
        return (at) => [
          top[at], top[at] + left[at], squares[0] * one.square[at], squares[0] * one.square[at],
          both(one.square[at], other.square[at], squares), both(2 * one.most[at], other.most[at], largest),
          error * both(2 * one.spread[at], other.spread[at], largest),
        ];
      }
      const [base, mixed, square] = what === "share" ? [whole, one.sum, ofAll((all) => dot(all, all))] : [1, null, 0];
      return (at) => [top[at], base, one.square[at], mixed?.[at] ?? 0, square, ofAll(most) + one.most[at], error * (ofAll(spread) + one.spread[at])];
    };
    const tails = part ? parts[tail] : counting[tail][parts?.response ? 0 : group];
    const value = near.of(mine), base = part ? near.of(whole_rows) : value.map(() => (what === "share" ? whole : 1));
    const below = lines(low, high), above = lines(high, low), maximum = what === "rows" ? mostRows : 1;
    const start = value.map((_, at) => end(-1, maximum, tails, below(at)));
    const stop = value.map((_, at) => end(1, maximum, tails, above(at)));
    const first = start.map((one, at) => Math.min(one, stop[at])), last = start.map((one, at) => Math.max(one, stop[at]));
    const values = value.map((one, at) => Math.min(last[at], Math.max(first[at], base[at] > 0 ? one / base[at] : 0.5)));
    // The width that cells alone leave at a place, as in `simultaneous_intervals`.
    const width = (at) => {
      const [lowest, highest] = [below(at), above(at)].map(([top, base], side) => Math.min(last[at], Math.max(first[at], base > 0 ? top / base : side)));
      return Math.max(highest - lowest, 0);
    };
    return { value: values, low: first, high: last, width };
  };
  // The box, by tables of what lies below each high end, and below each low one.
  const inside = (tables, before = tables) => known(state.box.map((pair, i) => {
    const [low, high] = pair.map((end) => counting.ends[i].findIndex((one) => Math.abs(one - share(i, end)) < 1e-9));
    const less = (a, b) => [row(i, tables[i][a], high).map((one, j) => one - row(i, before[i][b], low)[j])];
    return { low: less("low", "high"), near: less("near", "near"), high: less("high", "low") };
  }));
  // All places, of a slice; of one axis what its weights tell is on the page.
  const everywhere = (tables) => {
    if (axes.length === 1) {
      const side = ({ of, ...others }) => ({ of: (times) => mixed(of.map((one) => arrays[one]), times), ...Object.fromEntries(Object.entries(others).map(([name, one]) => [name, arrays[one]])) });
      return { low: side(tables[0].low), near: side(tables[0].near), high: side(tables[0].high) };
    }
    return known(tables.map((one, i) => {
      const rows = (table) => (i === 2 ? [row(i, table, state.slice)] : Array.from({ length: cells }, (_, at) => row(i, table, at)));
      return { low: rows(one.low), near: rows(one.near), high: rows(one.high) };
    }));
  };
  const scaled = ({ value, low, high }, start, width) => {
    const [a, b, c] = [value, low, high].map((each) => each.map((one) => start + width * one));
    return { value: a, low: b, high: c };
  };
  // Responses, or a group's shares, at all places: no value where nothing between the bounds is denied.
  const parted = (weights) => {
    const found = told(weights, "part", "everywhere"), value = found.value.map((one, at) => (found.low[at] <= 0 && found.high[at] >= 1 ? NaN : one));
    return scaled({ ...found, value }, parts.low, parts.high - parts.low);
  };
  const numbers = ({ value, low, high }) => [value[0], low[0], high[0]];

  // Numbers for people: to the digits that the error leaves, thousands apart, the small by powers of ten.
  const percent = "\u00a0%";
  const fixed = (number, digits) => number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replaceAll(",", "\u202f");
  const raised = (power) => "×10" + String(power).replace(/[-0-9]/g, (one) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(one)]);
  const rounded = (number, error) => {
    const digits = 1 - Math.floor(Math.log10(error || 1)), size = Math.floor(Math.log10(Math.max(Math.abs(number), error || 1)));
    if (digits < 0) return fixed(Math.round(number * 10 ** digits) / 10 ** digits, 0);
    if (size > -4) return fixed(number, Math.min(12, digits));
    return fixed(number / 10 ** size, Math.min(12, Math.max(0, digits + size))) + raised(size);
  };
  const shares = () => ["share", "likeliest"].includes(state.show);
  const written = (number, error) => (Number.isNaN(number) ? "no rows here" : shares() ? rounded(100 * number, 100 * error) + percent : rounded(number, error));
  // The middle of a cell of an axis.
  const position = (i, at) => {
    const [low, size] = ends(i), place = low + middles[at] * size;
    if (axes[i].scale === 1) return rounded(place, size / cells);
    return new Date(place * axes[i].scale).toISOString().slice(0, 16).replace("T", " ");
  };
  // A list of texts, each of which is written when it is looked at.
  const lazily = (of) => [new Proxy([], { get: (list, at) => (/^\d+$/.test(String(at)) ? of(Number(at)) : list[at]) })];
  // Ticks of numbers, with no more digits than tell them apart.
  const ticks = (values, scaled) => {
    const [factor, unit] = scaled() ? [100, percent] : [1, ""], numbers = values.map((one) => one * factor);
    const largest = most(numbers), size = largest > 0 ? Math.floor(Math.log10(largest)) : 0;
    const power = size < -3 || size > 14 ? size : 0, step = 1e-3 * Math.abs(numbers[1] - numbers[0] || largest || 1) / 10 ** power;
    const told = numbers.map((one) => one / 10 ** power);
    let digits = 0;
    while (digits < 12 && told.some((one) => Math.abs(Number(one.toFixed(digits)) - one) > step)) digits++;
    return told.map((one) => (one === 0 ? "0" : fixed(one, digits) + (power ? raised(power) : "")) + unit);
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
      for (const ruler of [...one.left, ...one.below].filter((part) => part.formatter?.type === "BasicTickFormatter")) {
        const valued = ruler.name === "value-bar" || (axes.length === 1 && one.left.includes(ruler));
        ruler.formatter.doFormat = (values) => ticks(values, () => valued && shares());
      }
      one.on_event("selectiongeometry", (event) => {
        const { x0, x1, y0, y1 } = event.geometry;
        const dragged = [[x0, x1], [y0, y1]];
        const sides = axes.map((axis, i) => (axes.length === 1 ? dragged[0] : i < 2 ? dragged[across.indexOf(i)] : state.box[2].map((end) => end * axis.scale)));
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
  const middles = Array.from({ length: cells }, (_, j) => (j + 0.5) / cells);
  // The function as it was released, and the ends that `interval` gives.
  const drawn = (size) => {
    if (on_page) {
      const group = parts?.response ? 0 : state.group, groups = parts?.response ? 1 : released.length;
      const whole = on_page.length / groups / 3, stride = whole / size, slice = stride > 1 ? state.slice : 0;
      const [value, below, above] = [0, 1, 2].map((of) => Float64Array.from({ length: size }, (_, place) => on_page[(of * groups + group) * whole + place * stride + slice]));
      // Below 0 there are no rows: all of the range, and no value.
      return {
        value: value.map((one, at) => (above[at] < 0 ? NaN : one)),
        low: value.map((one, at) => one - below[at]),
        high: value.map((one, at) => one + Math.abs(above[at])),
      };
    }
    const rows = axes.map((_, i) => (i === 2 ? [middles[state.slice]] : middles).map((y) => weights(i, y)));
    const of = (values) => sums(values, rows).map((one) => facts.unit * one);
    const raw = of(released[state.group]), shown = answered[state.group], value = shown ? of(shown) : raw;
    const band = bands[state.group], cell = (i, at) => Math.floor(middles[at] * band.cells[i]);
    const width = raw.map((_, at) => band.widths[(cell(0, Math.floor(at / cells)) * band.cells[1] + cell(1, at % cells)) * band.cells[2] + cell(2, state.slice)]);
    return { value, low: raw.map((one, at) => Math.min(one - width[at], value[at])), high: raw.map((one, at) => Math.max(one + width[at], value[at])) };
  };
  // The group that is the largest at each place, after all others where it is not sure to be.
  const likeliest = (at) => {
    const each = released.map((_, group) => told(at, "part", "everywhere", group));
    const best = each[0].value.map((_, place) => each.reduce((found, one, g) => (one.value[place] > each[found].value[place] ? g : found), 0));
    const pick = (name) => best.map((g, place) => each[g][name][place]);
    const rival = (g, place) => each.reduce((top, one, h) => (h === g ? top : Math.max(top, one.high[place])), 0);
    const sure = best.map((g, place) => each[g].low[place] > Math.min(0.5, rival(g, place)));
    return { value: pick("value"), low: pick("low"), high: pick("high"), shown: best.map((g, place) => (sure[place] ? g : g + each.length)) };
  };
  const fill = () => {
    const stop = counting?.stops[state.stop], size = cells ** Math.min(2, axes.length), source = named("cells");
    const own = stop?.factor === 1 && ["density", "response"].includes(state.show);
    const at = stop?.values.length && !own ? everywhere(stop.values) : null;
    const found = own ? drawn(size) : state.show === "likeliest" ? likeliest(at)
      : state.show !== "density" ? parted(at)
      : at ? scaled(told(at, "rows", "everywhere"), 0, stop.peak) : drawn(size);
    const { value, low, high } = found, width = high.map((one, place) => (one - low[place]) / 2);
    if (axes.length > 2) {
      find("live-slice-name").textContent = position(2, state.slice);
    }
    const error = (place) => width[place], texts = (of) => (place) => written(of[place], error(place));
    const said = { value_text: texts(value), low_text: texts(low), high_text: texts(high) };
    const dark = scheme.matches ? "dark" : "light", palette = facts.palettes[dark];
    const classes = { palette: facts.classes[dark], low: -0.5, high: 2 * released.length - 0.5 };
    const image = (values, ...shape) => [Bokeh.require("core/util/ndarray").ndarray(Float64Array.from(values).buffer, { dtype: "float64", shape })];
    if (axes.length === 1) {
      const [axis] = axes, [least, top] = [Math.min(...low, ...(state.show === "density" ? [0] : [])), Math.max(...high)];
      const room = 0.05 * (top - least), shares = state.show === "share";
      named("heights").setv(shares ? { start: 0, end: 1.06 } : { start: least - (least < 0 || state.show === "response" ? room : 0), end: top + room });
      named("value-colours")?.setv(classes);
      if (named("strip")) named("strip").data = { image: shares ? image(likeliest(at).shown, 1, cells) : [] };
      const each = (of) => middles.map((_, place) => of(place));
      source.data = {
        x: middles.map((y) => (axis.low + y * ends(0)[1]) * axis.scale), value: [...value], width: [...width],
        low: [...low], high: [...high], first_text: each((place) => position(0, place)), second_text: each(() => ""),
        ...Object.fromEntries(Object.entries(said).map(([name, of]) => [name, each(of)])),
      };
      return;
    }
    // Rows of an image run along the axis that is drawn to the right.
    const index = (place) => { const pair = [place % cells, Math.floor(place / cells)]; return pair[across.indexOf(0)] * cells + pair[across.indexOf(1)]; };
    const turned = (from) => image(Array.from({ length: size }, (_, place) => from(index(place))), cells, cells);
    const hidden = (place) => parts?.response && width[place] > (parts.high - parts.low) / 4;
    const shown = found.shown ?? value.map((one, place) => (hidden(place) ? NaN : one));
    source.data = {
      image: turned((place) => shown[place]), value: turned((place) => value[place]), width: turned((place) => width[place]),
      low: turned((place) => low[place]), high: turned((place) => high[place]),
      ratio: turned((place) => (parts?.response ? width[place] : value[place] / width[place])),
      first_text: lazily((place) => position(across[0], place % cells)), second_text: lazily((place) => position(across[1], Math.floor(place / cells))),
      ...Object.fromEntries(Object.entries(said).map(([name, of]) => [name, lazily((place) => of(index(place)))])),
    };
    const known = shown.filter((one) => one === one);
    const least = parts?.response ? known.reduce((a, b) => Math.min(a, b), Infinity) : known.reduce((a, b) => Math.min(a, b), 0);
    const colours = found.shown ? classes : { palette, low: known.length ? least : 0, high: known.length ? known.reduce((a, b) => Math.max(a, b), -Infinity) : 1 };
    named("value-colours").setv(colours);
    named("value-bar").setv({ visible: !found.shown });
    named("ratio-colours").setv(parts?.response ? { palette: [...palette], low: 0, high: most(width) } : { palette, high: source.data.ratio[0].reduce((a, b) => Math.max(a, b), 10) });
  };
  const fit = () => figures.forEach((one) => {
    const ratio = Number(root.dataset.ratio), tallest = Math.max(320, 0.62 * innerHeight);
    const room = Math.min(find("live-" + one.name).clientWidth - 100, tallest / ratio);
    if (room > 0) one.setv({ frame_width: Math.floor(room), frame_height: Math.max(axes.length === 1 ? 180 : 0, Math.round(room * ratio)) });
  });
  const answer = () => {
    figures.forEach((one) => {
      const sides = state.box.map((pair, i) => pair.map((end) => end * axes[i].scale)), [x, y] = axes.length === 1 ? sides : across.map((i) => sides[i]);
      const boxes = one.center.filter((part) => part.tags.includes("box"));
      for (const part of boxes) part.setv({ left: x[0], right: x[1], ...(y ? { bottom: y[0], top: y[1] } : {}) });
    });
    const said = (numbers, unit) => {
      const [value, low, high] = numbers.map((one) => rounded(one, Math.max((numbers[2] - numbers[1]) / 2, 1e-9)) + unit);
      return [value, `from ${low} to ${high}`];
    };
    const percents = (found) => said(found.map((one) => 100 * one), percent);
    const smooth = counting && inside(counting.stops[state.stop].masses), sharp = counting && inside(...[1, 0].map((end) => counting.steps.map((one) => one[end])));
    const shown = (found) => numbers(parts?.response ? scaled(found, parts.low, parts.high - parts.low) : found), what = parts?.response ? "part" : "share";
    const main = counting ? shown(told(smooth, what, "tails")) : summed();
    const [value, between] = parts?.response ? said(main, "") : percents(main);
    find("live-mass").textContent = value;
    find("live-between").textContent = between;
    Object.assign(find("live-mass").dataset, { found: JSON.stringify(main), box: JSON.stringify(state.box) });
    if (counting) {
      const found = told(sharp, what, "tails"), shares = shown(found);
      find("live-cells").hidden = 2 * found.width(0) <= found.high[0] - found.low[0];
      const counts = numbers(told(sharp, "rows", "tails")).map((one) => counting.rows * one);
      find("live-records").textContent = (parts?.response ? said(shares, "") : percents(shares)).join(", ");
      find("live-count").textContent = said(counts, "").join(" rows, ");
      Object.assign(find("live-records").dataset, { shares: JSON.stringify(shares), counts: JSON.stringify(counts) });
    }
    if (find("live-parts")) {
      const each = released.map((_, group) => numbers(told(smooth, "part", "tails", group)));
      each.forEach((one, group) => { [find(`live-part-${group}`).textContent, find(`live-ends-${group}`).textContent] = percents(one); });
      find("live-parts").dataset.found = JSON.stringify(each);
    }
    write_ends(document.activeElement);
  };
  // What the fields say is what is answered: all but the one that is being written in.
  const write_ends = (except) => state.box.forEach((pair, i) => pair.forEach((end, which) => {
    const field = find(`live-${which ? "high" : "low"}-${i}`);
    field.setCustomValidity("");
    if (field === except) return;
    if (field.type === "number") field.value = Number(end.toPrecision(12));
    else field.valueAsNumber = Math.round(end * axes[i].scale / 1000) * 1000;
  }));
  // Not of reversed ends, nor of what is no number: then nothing is answered.
  axes.forEach((axis, i) => ["low", "high"].forEach((name, which) => {
    const field = find(`live-${name}-${i}`);
    field.addEventListener("input", () => {
      const place = field.valueAsNumber / (field.type === "number" ? 1 : axis.scale), pair = [...state.box[i]];
      pair[which] = Number.isFinite(place) ? snapped(i, place) : NaN;
      const refused = Number.isFinite(place) ? pair[0] > pair[1] && "The first end is above the second" : "No number";
      find("live-answer").hidden = Boolean(refused);
      find("live-refused").textContent = refused || "";
      field.setCustomValidity(refused || "");
      if (refused) return;
      state.box[i] = pair;
      answer();
    });
    field.addEventListener("change", () => {
      find("live-answer").hidden = false;
      find("live-refused").textContent = "";
      write_ends();
    });
  }));
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
  find("live-show")?.addEventListener("change", (event) => {
    state.show = event.target.value;
    find("live-title").textContent = event.target.selectedOptions[0].dataset.title;
    document.querySelectorAll("[data-of]").forEach((one) => { one.hidden = one.dataset.of !== state.show; });
    fit();
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
