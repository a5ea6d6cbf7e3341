// What all drawings share: colours of the sheet, units, downloads, loading.
"use strict";
const fuseplan = (() => {
  // Asked for thousands of times in one drawing: read from the sheet once a theme.
  const colours = new Map();
  document.addEventListener("fuseplan:theme", () => colours.clear());
  const colour = (name) => {
    if (!colours.has(name))
      colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
    return colours.get(name);
  };
  // The page answers first, drawings follow in the next frame.
  const afterPaint = (act) => requestAnimationFrame(() => setTimeout(act));
  const families = ["pointwise", "reduction", "contraction", "window", "library", "opaque"];
  const familyColour = (name) => colour(families.includes(name) ? name : "library");
  const number = (value) => Number(value.toPrecision(3)).toString();
  const unitOf = (seconds) =>
    seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e-3, "ms"] : seconds >= 1e-6 ? [1e-6, "µs"] : [1e-9, "ns"];
  // On an axis round numbers; elsewhere three digits, as the tables have them.
  const inUnits = (told) => (seconds) => {
    const [scale, unit] = unitOf(Math.abs(seconds));
    return `${told(seconds / scale)} ${unit}`;
  };
  const tick = inUnits(number);
  const duration = inUnits((value) => (value === 0 || Math.abs(value) >= 999.5 ? value.toFixed(0) : value.toPrecision(3)));
  const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const short = (value) => {
    const found = prefixes.find(([scale]) => Math.abs(value) >= scale);
    return found ? `${number(value / found[0])} ${found[1]}` : number(value);
  };
  const text = () => ({ color: colour("soft"), fontSize: 12, fontFamily: getComputedStyle(document.body).fontFamily });
  const tooltip = () => ({
    renderMode: "richText", confine: true,
    backgroundColor: colour("raised"), borderColor: colour("line-strong"),
    textStyle: { color: colour("ink"), fontSize: 12 },
  });
  const axis = (name, more) => ({
    name, nameLocation: "middle", nameGap: 28, nameTextStyle: text(), axisLabel: text(),
    axisLine: { lineStyle: { color: colour("line-strong") } },
    splitLine: { lineStyle: { color: colour("line") } },
    ...(more.type === "log" ? { minorTick: { show: true, splitNumber: 9 }, minorSplitLine: { show: true, lineStyle: { color: colour("line"), opacity: 0.45 } } } : {}),
    ...more,
  });

  const save = (content, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(content);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // A drawing of its own, so that the file has a ground and never depends on the screen.
  const image = async (options, place, kind, name) => {
    const size = { width: Math.max(800, place.clientWidth), height: Math.max(420, place.clientHeight) };
    const whole = { ...options, backgroundColor: colour("ground") };
    if (kind === "svg") {
      const copy = echarts.init(null, null, { renderer: "svg", ssr: true, ...size });
      copy.setOption(whole);
      save(new Blob([copy.renderToSVGString()], { type: "image/svg+xml" }), `${name}.svg`);
      copy.dispose();
      return;
    }
    const canvas = document.createElement("canvas");
    const copy = echarts.init(canvas, null, { renderer: "canvas", devicePixelRatio: 2, ...size });
    copy.setOption(whole);
    canvas.toBlob((blob) => {
      save(blob, `${name}.png`);
      copy.dispose();
    });
  };

  // Buttons beside a heading: PNG and SVG of the drawing, JSON of its figures.
  const offer = (id, options) => {
    const place = document.querySelector(`.downloads[data-chart="${id}"]`);
    if (!place || place.childElementCount) return;
    for (const kind of ["png", "svg"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "quiet";
      button.textContent = kind.toUpperCase();
      button.setAttribute("aria-label", `Download the drawing as ${kind.toUpperCase()}`);
      button.addEventListener("click", () =>
        image(options(), document.getElementById(id), kind, place.dataset.name));
      place.append(button);
    }
    if (place.dataset.json) {
      const link = document.createElement("a");
      link.href = place.dataset.json;
      link.textContent = "JSON";
      place.append(link);
    }
  };

  // A chart that follows the theme and its place's width; options are made anew each time.
  const chart = (id, options, opened) => {
    const place = document.getElementById(id);
    place.replaceChildren();
    const made = echarts.init(place, null, { renderer: "canvas" });
    const draw = () => made.setOption(options(), true);
    draw();
    new ResizeObserver(() => { made.resize(); }).observe(place);
    document.addEventListener("fuseplan:theme", () => afterPaint(draw));
    if (opened) {
      made.on("click", (event) => {
        const to = event.data && event.data.href;
        if (to) opened(to);
      });
    }
    offer(id, options);
    place.dataset.drawn = "yes";
    return { made, draw };
  };

  const say = (place, words) => {
    const line = document.createElement("p");
    line.className = "placeholder";
    line.textContent = words;
    place.replaceChildren(line);
  };
  const load = async (place) => {
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(place.dataset.source);
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      return await answer.json();
    } catch (error) {
      say(place, `The figures could not be loaded (${error.message}). Reload the page to try again.`);
      return null;
    } finally {
      place.removeAttribute("aria-busy");
    }
  };
  const narrow = () => matchMedia("(max-width: 48rem)").matches;

  return { afterPaint, colour, tick, familyColour, families, number, unitOf, duration, short, text, tooltip, axis, chart, offer, save, say, load, narrow };
})();
