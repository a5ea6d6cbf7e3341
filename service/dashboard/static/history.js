// The curve of the best plan so far: thinned by the server, then live.
"use strict";
{
  const { colour, number, unitOf, duration, text, tooltip, axis, chart, load, say } = fuseplan;
  const place = document.getElementById("history");
  const switches = document.querySelector(".switch.across");
  const shows = document.querySelector(".switch.show");

  let points = []; // [trial, seconds since submission, best, gap, low share, high share]
  let marks = [];
  const levels = {};
  const alone = new Set(); // names of levels that were timed alone in a process
  if (place.dataset.unfused) levels["without fusion, predicted"] = Number(place.dataset.unfused);
  if (place.dataset.bound) levels["bound"] = Number(place.dataset.bound);
  let drawn = null;
  let shown = new URLSearchParams(location.search).get("show") === "gap" ? "gap" : "time";
  let across = new URLSearchParams(location.search).get("across") === "time" ? "time" : "trial";

  const at = (point) => (across === "time" ? point[1] : point[0]);
  const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

  // A kernel's typical interval around the curve: the median of the last trials.
  const band = (scale) => {
    const low = [], high = [], recent = [];
    for (const point of points) {
      if (point[4] && point[5]) recent.push([point[4], point[5]]);
      if (recent.length > 25) recent.shift();
      if (!recent.length) continue;
      const best = point[2] / scale;
      const below = best * median(recent.map((r) => r[0])), above = best * median(recent.map((r) => r[1]));
      low.push([at(point), below]);
      high.push([at(point), above - below]);
    }
    const line = (data, area) => ({
      type: "line", data, stack: "band", stackStrategy: "all", step: "end", showSymbol: false, silent: true, lineStyle: { opacity: 0 }, tooltip: { show: false },
      ...(area ? { areaStyle: { color: colour("accent"), opacity: 0.13 } } : {}),
    });
    return low.length ? [line(low, false), line(high, true)] : [];
  };

  // How far the plan may still be from the best one: a certificate, never an estimate.
  const gapOptions = () => {
    const known = points.filter((point) => typeof point[3] === "number");
    return {
      animation: false, textStyle: text(),
      grid: { left: 56, right: 24, top: 32, bottom: 44 },
      tooltip: { ...tooltip(), trigger: "axis", formatter: ([item]) => (item ? `trial ${known[item.dataIndex][0]} after ${number(known[item.dataIndex][1])} s: gap ${number(item.value[1])} %` : "") },
      xAxis: axis(across === "time" ? "seconds since submission" : "trials", { type: "value", min: 0, max: "dataMax", nameGap: 26, splitLine: { show: false }, axisLabel: { ...text(), formatter: (v) => number(v), hideOverlap: true } }),
      yAxis: { type: "value", name: "gap, %", min: 0, nameTextStyle: { ...text(), align: "right" }, axisLabel: { ...text(), formatter: number }, splitLine: { lineStyle: { color: colour("line") } } },
      series: [{
        type: "line", name: "gap", step: "end", showSymbol: known.length === 1, data: known.map((point) => [at(point), point[3] * 100]),
        lineStyle: { width: 2, color: colour("good") }, itemStyle: { color: colour("good") }, areaStyle: { color: colour("good"), opacity: 0.08 },
      }],
    };
  };

  const options = () => {
    if (shown === "gap") return gapOptions();
    const largest = Math.max(...points.map((p) => p[2]));
    const least = Math.min(...points.map((p) => p[2]));
    const [scale, unit] = unitOf(largest);
    const near = Object.entries(levels).filter(([, s]) => s <= largest * 2.8 && s >= least / 4);
    return {
      animation: false, textStyle: text(),
      grid: { left: 56, right: 24, top: 32, bottom: 44 },
      tooltip: {
        ...tooltip(), trigger: "axis",
        formatter: (items) => {
          const item = items.find((one) => one.seriesName === "best");
          if (!item) return "";
          const point = points[item.dataIndex];
          const decided = marks.filter((mark) => mark.trial === point[0]).map((mark) => mark.text);
          const gap = point[3] === null || point[3] === undefined ? "" : `, gap ${number(point[3] * 100)} %`;
          return [`trial ${point[0]} after ${number(point[1])} s: ${duration(point[2])}${gap}`, ...decided].join("\n");
        },
      },
      xAxis: axis(across === "time" ? "seconds since submission" : "trials", { type: "value", min: 0, max: "dataMax", nameGap: 26, splitLine: { show: false }, axisLabel: { ...text(), formatter: (v) => number(v), hideOverlap: true } }),
      yAxis: {
        type: "value", name: unit, nameTextStyle: { ...text(), align: "right" }, scale: true,
        max: (value) => Math.max(Math.min(value.max, (largest / scale) * 1.6), ...near.map(([, s]) => (s / scale) * 1.03)),
        min: (value) => Math.min(Math.max(value.min, (least / scale) * 0.75), ...near.map(([, s]) => (s / scale) * 0.97)),
        axisLabel: { ...text(), formatter: number, showMaxLabel: false, showMinLabel: false },
        splitLine: { lineStyle: { color: colour("line") } },
      },
      series: [
        ...band(scale),
        {
          type: "line", name: "best", step: "end", showSymbol: points.length === 1, symbol: "circle", symbolSize: 7,
          data: points.map((point) => [at(point), point[2] / scale]),
          lineStyle: { width: 2, color: colour("accent") }, itemStyle: { color: colour("accent") }, z: 4,
          markLine: {
            silent: true, symbol: "none", lineStyle: { type: "dashed", color: colour("faint") },
            label: { position: "insideEndTop", color: colour("soft"), fontSize: 11, formatter: (mark) => `${mark.name} ${duration(mark.value * scale)}` },
            data: near.map(([name, seconds]) => ({
              name, yAxis: seconds / scale,
              label: { position: name === "bound" ? "insideStartTop" : alone.has(name) ? "insideMiddleTop" : "insideEndTop" },
              ...(alone.has(name) ? { lineStyle: { type: "dotted", color: colour("soft") } } : {}),
            })),
          },
          markPoint: {
            symbol: "circle", symbolSize: 8, label: { show: false },
            itemStyle: { color: colour("raised"), borderColor: colour("accent"), borderWidth: 2 },
            data: marks.filter((mark) => mark.best_seconds).map((mark) => ({ coord: [across === "time" ? mark.elapsed_seconds : mark.trial, mark.best_seconds / scale], name: mark.text })),
          },
        },
      ],
    };
  };

  let waiting = false;
  const draw = () => {
    waiting = false;
    if (!points.length) return;
    if (drawn) drawn.draw();
    else {
      drawn = chart("history", options);
      switches.hidden = false;
      shows.hidden = false;
    }
    const last = points[points.length - 1];
    place.dataset.points = String(points.length);
    place.setAttribute("aria-label", `Time of the best plan: ${duration(last[2])} after ${last[0]} trials`);
  };
  const drawSoon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(draw);
  };

  const press = () => {
    for (const button of switches.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset.axis === across));
    for (const button of shows.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset.show === shown));
  };
  press();
  switches.addEventListener("click", (event) => {
    const chosen = event.target.dataset.axis;
    if (!chosen) return;
    across = chosen;
    const query = new URLSearchParams(location.search);
    if (across === "time") query.set("across", "time");
    else query.delete("across");
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    press();
    drawSoon();
  });

  shows.addEventListener("click", (event) => {
    const chosen = event.target.dataset.show;
    if (!chosen) return;
    shown = chosen;
    const query = new URLSearchParams(location.search);
    if (shown === "gap") query.set("show", "gap");
    else query.delete("show");
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    press();
    drawSoon();
  });

  let refreshing = null;
  const refresh = () => {
    if (refreshing || place.dataset.over === "yes") return;
    refreshing = setTimeout(() => {
      refreshing = null;
      for (const part of document.querySelectorAll(".live")) htmx.trigger(part, "refresh");
    }, 700);
  };

  // Programs are timed by turns; ONNX Runtime, and the plan once more, each alone in a
  // process. Lines of one kind are compared with each other: they are named and dotted alike.
  const whole = (seconds) => {
    if (!seconds) return;
    const apart = seconds.alone > 0;
    const names = {
      unfused: "without fusion, measured", plan: "this plan, measured whole",
      alone: "this plan, alone", reference: apart ? "ONNX Runtime, alone" : "ONNX Runtime, measured",
    };
    if (!seconds.plan) names.untuned = names.plan;
    for (const [name, label] of Object.entries(names)) {
      if (!(seconds[name] > 0) || !Number.isFinite(seconds[name])) continue;
      levels[label] = seconds[name];
      if (apart && (name === "alone" || name === "reference")) alone.add(label);
    }
    if (seconds.unfused) delete levels["without fusion, predicted"];
  };

  const started = performance.now();
  let before = 0;
  const take = (kind, data) => {
    const best = data.best_seconds;
    const elapsed = before + (performance.now() - started) / 1000;
    if ((kind === "trial" || kind === "resolve") && best > 0) {
      const timed = data.seconds && data.low_seconds && data.high_seconds && !data.contended;
      points.push([data.trials ?? points.length, elapsed, best, data.gap ?? null, timed ? data.low_seconds / data.seconds : null, timed ? data.high_seconds / data.seconds : null]);
    }
    if (kind === "resolve" && data.changed)
      marks.push({ trial: data.trials, elapsed_seconds: elapsed, best_seconds: best, text: `partition solved again: ${data.changed} kernels new` });
    if (kind === "plan") {
      marks.push({ trial: data.trials, elapsed_seconds: elapsed, best_seconds: best, text: "whole plan timed" });
      whole(data.seconds);
    }
    drawSoon();
    refresh();
  };

  const follow = (after) => {
    const stream = new EventSource(`${place.dataset.events}?after=${after}`);
    for (const kind of ["state", "trial", "resolve", "plan"])
      stream.addEventListener(kind, (event) => take(kind, JSON.parse(event.data)));
    stream.addEventListener("done", (event) => {
      stream.close();
      take("done", JSON.parse(event.data));
      if (!points.length) say(place, "This job ended before its first measurement.");
      setTimeout(() => (place.dataset.over = "yes"), 1500);
    });
  };

  const start = async () => {
    const told = await load(place);
    if (!told) return;
    points = told.points;
    marks = told.marks;
    whole(told.whole_seconds);
    if (points.length) {
      before = points[points.length - 1][1];
      draw();
    } else if (place.dataset.over === "yes") say(place, "This job ended before its first measurement.");
    else say(place, "No trial yet. The curve starts with the first measurement.");
    if (place.dataset.over !== "yes") follow(told.after);
  };
  start();
}
