// Kernels under the roofs of their device: a ring for the prediction, a dot for the run.
"use strict";
{
  const { colour, familyColour, duration, short, text, tooltip, axis, chart, load, narrow, say } = fuseplan;
  const place = document.getElementById("roofline");
  const query = place.dataset.query;

  const bounds = (view) => {
    const xs = view.points.map((p) => p.intensity);
    const ys = view.points.flatMap((p) => [p.predicted, p.measured]).filter(Boolean);
    const top = Math.max(...view.compute.map((c) => c.operations_per_second), ...ys);
    const end = view.compute.length && view.memory.length
      ? view.compute[0].operations_per_second / Math.min(...view.memory.map((m) => m.bytes_per_second)) : 1;
    return {
      x: [Math.min(...xs, end / 20) / 1.6, Math.max(...xs, end * 4) * 2],
      y: [Math.min(...ys, top / 30) / 1.6, top * 1.8],
    };
  };

  const roof = (name, points, kind) => ({
    type: "line", name, data: points, showSymbol: false, silent: true, z: 1,
    lineStyle: { color: colour(kind === "memory" ? "faint" : "soft"), width: 1.5 },
    endLabel: { show: false },
    markPoint: undefined,
  });

  // Where a flat roof begins: left of it, above the slopes, no kernel can be.
  const ridge = (view, range, c) =>
    Math.max(range.x[0], Math.min(...view.memory.map((m) => c.operations_per_second / m.bytes_per_second), range.x[1] / 10));

  const roofs = (view, range) => {
    const top = view.compute.length ? view.compute[0].operations_per_second : range.y[1];
    const lines = view.memory.map((m) => {
      const from = Math.max(range.x[0], range.y[0] / m.bytes_per_second);
      const to = Math.min(top / m.bytes_per_second, range.x[1]);
      return { ...roof(m.name, [[from, from * m.bytes_per_second], [to, to * m.bytes_per_second]], "memory"), rate: m.bytes_per_second };
    });
    const flat = view.compute.map((c) => {
      return roof(c.name, [[ridge(view, range, c), c.operations_per_second], [range.x[1], c.operations_per_second]], "compute");
    });
    return [...lines, ...flat];
  };

  // Names stand on the roofs themselves; a legend would be read twice.
  const names = (view, range) => {
    const label = (value, words, more) => ({
      value, symbolSize: 1, label: { show: true, formatter: words, color: colour("soft"), fontSize: 11, textBorderColor: colour("ground"), textBorderWidth: 3, ...more },
    });
    const decades = (ends) => Math.log10(ends[1] / ends[0]);
    const slope = ((place.clientHeight - 68) / decades(range.y)) / ((place.clientWidth - 96) / decades(range.x));
    const rotate = (Math.atan(slope) * 180) / Math.PI;
    const data = view.memory.map((m) => {
      const x = Math.max(range.x[0], range.y[0] / m.bytes_per_second) * 1.06;
      return label([x, x * m.bytes_per_second], `${m.name} ${short(m.bytes_per_second)}B/s`, { position: [0, 0], align: "left", verticalAlign: "bottom", padding: [0, 0, 3, 0], rotate });
    });
    for (const c of view.compute)
      data.push(label([ridge(view, range, c), c.operations_per_second], `${c.name} ${short(c.operations_per_second)}/s`, narrow() ? { position: "right", offset: [-8, -10] } : { position: "left", offset: [-4, 0] }));
    return { type: "scatter", data, silent: true, z: 2, itemStyle: { color: "transparent" }, tooltip: { show: false } };
  };

  const options = (view) => () => {
    const range = bounds(view);
    const largest = Math.max(...view.points.map((p) => p.seconds));
    const size = (seconds) => 7 + 21 * Math.sqrt(seconds / largest);
    const common = (p) => ({ name: p.name, href: p.href + query, told: `${p.name}  ${p.family}\n${p.nodes}\n${p.told}` });
    const predicted = view.points.map((p) => ({
      ...common(p), value: [p.intensity, p.predicted], symbolSize: size(p.seconds),
      itemStyle: { color: "transparent", borderColor: familyColour(p.family), borderWidth: 1.6 },
    }));
    const measured = view.points.filter((p) => p.measured).map((p) => ({
      ...common(p), value: [p.intensity, p.measured], symbolSize: size(p.seconds),
      itemStyle: { color: familyColour(p.family), opacity: 0.78 },
    }));
    const joints = view.points.filter((p) => p.measured).map((p) => ({
      coords: [[p.intensity, p.predicted], [p.intensity, p.measured]],
      lineStyle: { color: familyColour(p.family), opacity: 0.6, width: 1 },
    }));
    return {
      animation: false, textStyle: text(),
      grid: { left: narrow() ? 56 : 76, right: 20, top: 16, bottom: 52 },
      tooltip: { ...tooltip(), trigger: "item", formatter: (item) => item.data.told ?? "" },
      xAxis: axis("FP32-FMA equivalents per byte", { type: "log", min: range.x[0], max: range.x[1], nameGap: 30, axisLabel: { ...text(), formatter: (v) => short(v), hideOverlap: true, showMinLabel: false, showMaxLabel: false } }),
      yAxis: axis(narrow() ? "" : "FP32-FMA equivalents per second", { type: "log", min: range.y[0], max: range.y[1], nameGap: 52, axisLabel: { ...text(), formatter: (v) => short(v), showMinLabel: false, showMaxLabel: false } }),
      series: [
        ...roofs(view, range), names(view, range),
        { type: "lines", coordinateSystem: "cartesian2d", data: joints, silent: true, z: 3 },
        { type: "scatter", data: predicted, z: 4, cursor: "pointer" },
        { type: "scatter", data: measured, z: 5, cursor: "pointer" },
      ],
    };
  };

  const start = async () => {
    const view = await load(place);
    if (!view) return;
    if (!view.points.length) {
      say(place, "No kernel of this plan does arithmetic that the model counts; the table below holds all of them.");
      return;
    }
    chart("roofline", options(view), (to) => { location.href = to; });
    const told = [];
    if (view.without_arithmetic) told.push(`${view.without_arithmetic} kernels do no arithmetic and stand in the table only.`);
    if (view.not_drawn) told.push(`${view.not_drawn} shorter kernels are not drawn.`);
    document.getElementById("roofline-note").textContent = told.join(" ");
  };
  start();
}
