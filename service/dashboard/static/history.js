// The curve of the best plan so far: past events first, then live ones.
"use strict";
{
  const place = document.getElementById("history");
  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const unitOf = (seconds) =>
    seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  const number = (value) => Number(value.toPrecision(3)).toString();
  const duration = (seconds) => {
    const [scale, unit] = unitOf(seconds);
    return `${number(seconds / scale)} ${unit}`;
  };

  const points = []; // [trial, seconds]
  const marks = []; // decisions: a new partition, the whole plan's run
  const levels = {}; // horizontal lines by name
  if (place.dataset.unfused) levels["without fusion, predicted"] = Number(place.dataset.unfused);
  if (place.dataset.bound) levels["bound"] = Number(place.dataset.bound);

  place.replaceChildren();
  const waiting = document.createElement("p");
  waiting.className = "placeholder";
  waiting.textContent = "No trial yet. The curve starts with the first measurement.";
  place.append(waiting);
  let chart = null;

  const options = () => {
    const largest = Math.max(...points.map((p) => p[1]));
    const [scale, unit] = unitOf(largest);
    const text = { color: colour("soft"), fontFamily: getComputedStyle(document.body).fontFamily };
    const top = largest * 1.15;
    const shown = Object.entries(levels).filter(([, seconds]) => seconds / scale <= (top / scale) * 2.5);
    return {
      animation: false,
      textStyle: text,
      grid: { left: 56, right: 24, top: 32, bottom: 44 },
      tooltip: {
        trigger: "axis",
        renderMode: "richText",
        backgroundColor: colour("raised"),
        borderColor: colour("line-strong"),
        textStyle: { color: colour("ink"), fontSize: 12 },
        formatter: (items) => {
          const trial = items[0].value[0];
          const decided = marks.find((mark) => mark.trial === trial);
          const line = `trial ${trial}: ${duration(items[0].value[1] * scale)}`;
          return decided ? `${line}\n${decided.text}` : line;
        },
      },
      xAxis: {
        type: "value", name: "trials", nameLocation: "middle", nameGap: 26, nameTextStyle: text,
        min: 0, minInterval: 1, splitLine: { show: false },
        axisLine: { lineStyle: { color: colour("line-strong") } }, axisLabel: text,
      },
      yAxis: {
        type: "value", name: unit, nameTextStyle: { ...text, align: "right" },
        scale: true, max: (value) => Math.max(value.max, ...shown.map(([, s]) => (s / scale) * 1.03)),
        min: (value) => Math.min(value.min, ...shown.map(([, s]) => (s / scale) * 0.97)),
        axisLabel: { ...text, formatter: number, showMaxLabel: false, showMinLabel: false },
        splitLine: { lineStyle: { color: colour("line") } },
      },
      series: [{
        type: "line", step: "end", showSymbol: false, symbol: "circle", symbolSize: 7,
        data: points.map(([trial, seconds]) => [trial, seconds / scale]),
        sampling: "min", large: true,
        lineStyle: { width: 2, color: colour("accent") }, itemStyle: { color: colour("accent") },
        markLine: {
          silent: true, symbol: "none",
          lineStyle: { type: "dashed", color: colour("faint") },
          label: {
            position: "insideEndTop", color: colour("soft"), fontSize: 11,
            formatter: (mark) => `${mark.name} ${duration(mark.value * scale)}`,
          },
          data: shown.map(([name, seconds]) => ({ name, yAxis: seconds / scale })),
        },
        markPoint: {
          symbol: "circle", symbolSize: 8, label: { show: false },
          itemStyle: { color: colour("raised"), borderColor: colour("accent"), borderWidth: 2 },
          data: marks.map((mark) => ({ coord: [mark.trial, mark.seconds / scale], name: mark.text })),
        },
      }],
    };
  };

  let drawn = false;
  const draw = () => {
    drawn = false;
    if (!points.length) return;
    if (!chart) {
      place.replaceChildren();
      chart = echarts.init(place, null, { renderer: "canvas" });
      new ResizeObserver(() => chart.resize()).observe(place);
    }
    chart.setOption(options(), true);
    const last = points[points.length - 1];
    place.setAttribute("aria-label", `Time of the best plan: ${duration(last[1])} after ${last[0]} trials`);
  };
  const drawSoon = () => {
    if (drawn) return;
    drawn = true;
    requestAnimationFrame(draw);
  };
  document.addEventListener("fuseplan:theme", drawSoon);

  let refreshing = null;
  const refresh = () => {
    if (refreshing || place.dataset.over === "yes") return;
    refreshing = setTimeout(() => {
      refreshing = null;
      for (const part of document.querySelectorAll(".live")) htmx.trigger(part, "refresh");
    }, 700);
  };

  const take = (kind, data) => {
    const seconds = data.best_seconds;
    if (typeof seconds === "number" && seconds > 0) {
      points.push([data.trials ?? points.length, seconds]);
      if (kind === "resolve" && data.changed)
        marks.push({ trial: data.trials, seconds, text: `partition solved again: ${data.changed} kernels new` });
      if (kind === "plan")
        marks.push({ trial: data.trials, seconds, text: "whole plan timed" });
    }
    if (kind === "plan" && data.seconds) {
      const names = { unfused: "without fusion, measured", reference: "ONNX Runtime, measured" };
      for (const [name, label] of Object.entries(names))
        if (data.seconds[name] > 0 && Number.isFinite(data.seconds[name])) levels[label] = data.seconds[name];
    }
    drawSoon();
    refresh();
  };

  const stream = new EventSource(place.dataset.events);
  for (const kind of ["state", "trial", "resolve", "plan"])
    stream.addEventListener(kind, (event) => take(kind, JSON.parse(event.data)));
  stream.addEventListener("done", (event) => {
    stream.close();
    take("done", JSON.parse(event.data));
    if (!points.length) waiting.textContent = "This job ended before its first measurement.";
    setTimeout(() => (place.dataset.over = "yes"), 1500);
  });
}
