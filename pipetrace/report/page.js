"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // The chart takes its colours from the page's, so that there is one list of them.
  function theme(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const patch = {
      paper_bgcolor: colour("--page"), plot_bgcolor: colour("--plot"), "font.color": colour("--ink"),
      "hoverlabel.bgcolor": colour("--panel"), "hoverlabel.font.color": colour("--ink"),
      "hoverlabel.bordercolor": colour("--soft"),
      "modebar.bgcolor": "rgba(0,0,0,0)", "modebar.color": colour("--soft"), "modebar.activecolor": colour("--ink"),
    };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis[0-9]*$/.test(key)) patch[`${key}.gridcolor`] = colour("--grid");
    }
    return patch;
  }

  function set(target, path, value) {
    const keys = path.split(".");
    const last = keys.pop();
    for (const key of keys) target = target[key] ??= {};
    target[last] = value;
  }

  const config = { responsive: true, displaylogo: false, scrollZoom: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toggleSpikelines"] };
  // A WebGL buffer taller than the device allows is made smaller without a word, and tiles land on other ranks.
  const tallest = (() => {
    const gl = document.createElement("canvas").getContext("webgl");
    const most = gl ? Math.min(gl.getParameter(gl.MAX_VIEWPORT_DIMS)[1], gl.getParameter(gl.MAX_RENDERBUFFER_SIZE)) : 4096;
    gl?.getExtension("WEBGL_lose_context")?.loseContext();
    return most;
  })();
  const plots = [];
  let linking = false;

  // What is out of sight follows when it comes into view: redrawing all at once would make a zoom wait.
  const behind = new Map();
  const sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      target.inSight = isIntersecting;
      if (isIntersecting && behind.has(target)) {
        const range = behind.get(target);
        behind.delete(target);
        follow(target, range);
      }
    }
  }, { rootMargin: "100px" });

  function follow(plot, range) {
    linking = true;
    return Plotly.relayout(plot, { "xaxis.range": range }).finally(() => { linking = false; });
  }

  // Zooming one chart zooms all that show the same time.
  function link(plot, change) {
    if (linking || !plot.layout.meta?.time) return;
    const reset = change["xaxis.autorange"];
    const range = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (!reset && (range[0] === undefined || range[1] === undefined)) return;
    const others = plots.filter((other) => other !== plot && other.layout.meta?.time);
    const shown = reset ? plot.layout.xaxis.range.slice() : [...range];
    for (const other of others) behind.set(other, shown);
    const near = others.filter((other) => other.inSight);
    for (const other of near) behind.delete(other);
    // One after the other, and the chart that was touched first.
    near.reduce((before, other) => before.then(() => follow(other, shown)), Promise.resolve());
  }

  // A label stands where it has room, in the largest size at which nearly all have; as in bars.py.
  function label(plot) {
    const axis = plot._fullLayout.xaxis;
    const [from, to] = axis.range;
    const view = `${from} ${to} ${axis._length}`;
    if (plot.labelled === view) return;
    plot.labelled = view;
    const perUnit = axis._length / (to - from);
    const traces = [];
    plot._fullData.forEach((trace, i) => { if (trace.meta?.labels) traces.push([i, trace]); });
    if (!traces.length) return;
    const fits = (trace, i, size) => trace.x[i] * perUnit >= size * 0.6 * trace.meta.labels[i].length + 1;
    let size = 8;
    for (const wanted of [11, 10, 9, 8]) {
      let all = 0, fit = 0;
      for (const [, trace] of traces) {
        all += trace.x.length;
        for (let i = 0; i < trace.x.length; i++) fit += fits(trace, i, wanted);
      }
      size = wanted;
      if (fit >= 0.95 * all) break;
    }
    // Labels out of sight cost as much as those in sight, and one across the edge would run into the ranks' names.
    const inside = (trace, i) => {
      const middle = trace.base[i] + trace.x[i] / 2;
      const half = size * 0.3 * trace.meta.labels[i].length / perUnit;
      return middle - half >= from && middle + half <= to;
    };
    const seen = (trace) => 2 * trace.meta.labels.filter((_, i) => fits(trace, i, size)).length >= trace.x.length;
    Plotly.restyle(plot, {
      text: traces.map(([, trace]) => {
        const most = seen(trace);
        return trace.meta.labels.map((text, i) => most && fits(trace, i, size) && inside(trace, i) ? text : "");
      }),
      "insidetextfont.size": size,
    }, traces.map(([i]) => i));
  }

  async function draw() {
    for (const source of document.querySelectorAll("script[data-figure]")) {
      const plot = document.getElementById(source.dataset.figure);
      const figure = JSON.parse(source.textContent);
      source.remove();
      for (const [path, value] of Object.entries(theme(figure.layout))) set(figure.layout, path, value);
      const ratio = Math.min(2, tallest / (figure.layout.height ?? 1));
      await Plotly.newPlot(plot, figure.data, figure.layout, { ...config, plotGlPixelRatio: ratio });
      label(plot);
      plot.on("plotly_afterplot", () => label(plot));
      plot.on("plotly_relayout", (change) => link(plot, change));
      plots.push(plot);
      sight.observe(plot);
    }
    document.documentElement.dataset.drawn = String(plots.length);
  }

  dark.addEventListener("change", () => plots.forEach((plot) => Plotly.relayout(plot, theme(plot.layout))));

  // The table of actions: sorted and filtered as indexes into columns, and only some rows are made.
  function actions() {
    const source = document.getElementById("actions-data");
    if (!source) return;
    const { columns, unit, decimals } = JSON.parse(source.textContent);
    source.remove();
    const section = document.querySelector(".actions");
    const heads = [...section.querySelectorAll("thead th")];
    const body = section.querySelector("tbody");
    const count = section.querySelector("[data-count]");
    const more = section.querySelector("[data-more]");
    const inputs = [...section.querySelectorAll("[data-filter]")];
    const numbers = new Intl.NumberFormat("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    const signed = new Intl.NumberFormat("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals,
      signDisplay: "exceptZero" });
    const first = 25;
    let limit = first;
    let sort = { key: "slip", down: true };
    let rows = [];

    function arrange() {
      const wanted = Object.fromEntries(inputs.map((input) => [input.dataset.filter, input.value.trim()]));
      rows = [];
      for (let i = 0; i < columns.action.length; i++) {
        if (wanted.rank !== "" && String(columns.rank[i]) !== wanted.rank) continue;
        if (wanted.kind !== "" && columns.kind[i] !== wanted.kind) continue;
        if (wanted.text !== "" && !columns.action[i].includes(wanted.text)) continue;
        rows.push(i);
      }
      const values = columns[sort.key];
      const sign = sort.down ? -1 : 1;
      const compare = sort.key === "action"
        ? (a, b) => sign * values[a].localeCompare(values[b], "en", { numeric: true })
        : (a, b) => sign * (values[a] - values[b]);
      rows.sort((a, b) => compare(a, b) || a - b);
      for (const head of heads) {
        if (head.dataset.key === sort.key) head.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      }
    }

    // A few at first, so that the page's end is near; who asks for more wants many.
    function next() {
      return limit === first ? 200 : 1000;
    }

    function cell(row, tag, text) {
      const made = document.createElement(tag);
      made.textContent = text;
      if (tag === "th") made.scope = "row";
      row.append(made);
    }

    function show() {
      const made = document.createDocumentFragment();
      for (const i of rows.slice(0, limit)) {
        const row = document.createElement("tr");
        for (const head of heads) {
          const key = head.dataset.key;
          const value = columns[key][i];
          if (key === "action") cell(row, "th", value);
          else if (key === "rank") cell(row, "td", String(value));
          else cell(row, "td", (key === "slip" ? signed : numbers).format(value / unit));
        }
        made.append(row);
      }
      body.replaceChildren(made);
      const shown = Math.min(limit, rows.length);
      count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} actions shown`;
      more.hidden = shown === rows.length;
      more.textContent = `Show ${Math.min(next(), rows.length - shown).toLocaleString("en")} more`;
    }

    const again = () => { arrange(); show(); };
    for (const head of heads) {
      head.querySelector("button").addEventListener("click", () => {
        const key = head.dataset.key;
        const down = sort.key === key ? !sort.down : !["action", "rank", "ideal_start", "measured_start"].includes(key);
        sort = { key, down };
        limit = first;
        again();
      });
    }
    for (const input of inputs) input.addEventListener("input", () => { limit = first; again(); });
    more.addEventListener("click", () => { limit += next(); show(); });
    again();
  }

  actions();
  draw();
})();
