// Anything against anything, and schedules as lines over their knobs.
"use strict";
{
  const { colour, familyColour, tick, duration, number, text, tooltip, axis, chart, load, narrow, say } = fuseplan;
  const place = document.getElementById("scatter");
  const form = document.querySelector("form.axes");

  if (place && form) {
    const chosen = () => Object.fromEntries(new FormData(form));
    const label = (name) => form.querySelector(`select[name="x"] option[value="${CSS.escape(name)}"]`)?.textContent ?? name;
    const isTime = (name) => name.endsWith("seconds");
    const isLog = (name) => isTime(name) || name === "ratio";
    const shown = (name, value) => (isTime(name) ? duration(value) : name === "ratio" ? `${number(value)}×` : number(value));

    const read = (trial, name) => {
      if (name.startsWith("knob:")) return trial.schedule[name.slice(5)];
      if (name === "ratio") return trial.seconds && trial.predicted_seconds ? trial.seconds / trial.predicted_seconds : null;
      if (name === "spread") return trial.seconds && trial.high_seconds ? (trial.high_seconds - trial.low_seconds) / trial.seconds : null;
      return trial[name];
    };
    const group = (trial, by) =>
      by === "failure" ? trial.failure || "timed" : by === "contended" ? (trial.contended ? "disturbed" : "undisturbed") : trial.family;
    const palette = (name, by, i) => {
      if (by === "family") return familyColour(name);
      if (name === "timed" || name === "undisturbed") return colour("accent");
      return colour(["bad", "warn", "contraction", "window", "opaque"][i % 5]);
    };

    let trials = [];
    const kept = () => {
      const { kernel } = chosen();
      return kernel ? trials.filter((trial) => trial.kernel === kernel) : trials;
    };

    const options = () => {
      const { x, y, colour: by } = chosen();
      const groups = new Map();
      for (const trial of kept()) {
        const a = read(trial, x), b = read(trial, y);
        if (a === null || a === undefined || b === null || b === undefined) continue;
        if ((isLog(x) && a <= 0) || (isLog(y) && b <= 0)) continue;
        const name = group(trial, by);
        if (!groups.has(name)) groups.set(name, []);
        const knobs = Object.entries(trial.schedule).map(([knob, value]) => `${knob}=${value}`).join(" ");
        groups.get(name).push({
          value: [a, b], href: `/jobs/${place.dataset.job}/trials/${trial.number}`,
          told: `trial ${trial.trial}, ${trial.family}\n${label(x)}: ${shown(x, a)}\n${label(y)}: ${shown(y, b)}${knobs ? `\n${knobs}` : ""}`,
        });
      }
      const every = [...groups.values()].flat().map((point) => point.value);
      const isPair = isTime(x) && isTime(y);
      const least = Math.min(...every.flat()) / 1.3, most = Math.max(...every.flat()) * 1.3;
      const scale = (name) => axis(label(name), {
        type: isLog(name) ? "log" : "value", scale: true,
        ...(isPair ? { min: least, max: most } : {}),
        axisLabel: { ...text(), hideOverlap: true, showMinLabel: !isPair, showMaxLabel: !isPair, formatter: (value) => (isTime(name) ? tick(value) : number(value)) },
      });
      const names = [...groups.keys()].sort();
      place.setAttribute("aria-label", `${label(y)} over ${label(x)}, ${every.length} trials; the trial list holds the same figures`);
      return {
        animation: false, textStyle: text(),
        legend: { data: names, top: 0, left: 0, icon: "circle", itemWidth: 9, itemHeight: 9, textStyle: text() },
        grid: { left: narrow() ? 62 : 84, right: 24, top: 40, bottom: 56 },
        tooltip: { ...tooltip(), trigger: "item", formatter: (item) => item.data.told ?? "" },
        xAxis: { ...scale(x), nameGap: 32 },
        yAxis: { ...scale(y), name: narrow() ? "" : label(y), nameGap: 62 },
        series: [
          ...names.map((name, i) => ({
            type: "scatter", name, data: groups.get(name), symbolSize: 8, large: false, cursor: "pointer",
            itemStyle: { color: palette(name, by, i), opacity: 0.68 },
          })),
          ...(isPair && every.length
            ? [{ type: "line", data: [[least, least], [most, most]], showSymbol: false, silent: true, z: 1, tooltip: { show: false }, lineStyle: { color: colour("faint"), type: "dashed", width: 1 } }]
            : []),
        ],
      };
    };

    const lines = () => {
      const some = kept().filter((trial) => trial.seconds && Object.keys(trial.schedule).length);
      const given = (knob) => [...new Set(some.map((trial) => trial.schedule[knob]).filter((v) => v !== undefined))].sort((a, b) => a - b).map(String);
      // Kernels of another kind lack a knob: their lines pass below its values.
      const values = (knob) => [...(some.every((trial) => trial.schedule[knob] !== undefined) ? [] : ["–"]), ...given(knob)];
      const knobs = [...new Set(some.flatMap((trial) => Object.keys(trial.schedule)))].sort().filter((knob) => given(knob).length > 1).slice(0, narrow() ? 4 : 9);
      const times = some.map((trial) => trial.seconds);
      const [least, most] = [Math.min(...times), Math.max(...times)];
      return {
        animation: false, textStyle: text(),
        parallel: { left: 40, right: 72, top: 48, bottom: 24, parallelAxisDefault: { nameTextStyle: text(), axisLabel: text(), axisLine: { lineStyle: { color: colour("line-strong") } }, areaSelectStyle: { color: colour("accent"), borderColor: colour("accent"), width: 14, opacity: 0.2 } } },
        parallelAxis: [
          ...knobs.map((knob, dim) => ({ dim, name: knob, type: "category", data: values(knob) })),
          { dim: knobs.length, name: "time", type: "log", min: least, max: most > least ? most : least * 1.1, axisLabel: { ...text(), formatter: (v) => tick(v), showMinLabel: true, showMaxLabel: true, hideOverlap: true } },
        ],
        visualMap: { show: false, dimension: knobs.length, min: least, max: most, inRange: { color: [colour("accent"), colour("faint")] } },
        series: [{ type: "parallel", smooth: false, lineStyle: { width: 1.2, opacity: 0.5 }, data: some.map((trial, i) => [...knobs.map((knob) => String(trial.schedule[knob] ?? "–")), times[i]]) }],
      };
    };

    // Ranges that were dragged along the axes stand in the address: `keep=1:2~5`.
    const brush = (made) => {
      const kept = new Map();
      for (const part of (new URLSearchParams(location.search).get("keep") ?? "").split(";")) {
        const [, at, from, to] = /^(\d+):([-\d.]+)~([-\d.]+)$/.exec(part) ?? [];
        if (at) kept.set(Number(at), [Number(from), Number(to)]);
      }
      for (const [at, range] of kept)
        made.dispatchAction({ type: "axisAreaSelect", parallelAxisIndex: at, intervals: [range] });
      made.on("axisareaselected", (event) => {
        const asked = { mainType: "parallelAxis", index: event.parallelAxisIndex, id: event.parallelAxisId };
        const at = made.getModel().queryComponents(asked)[0].componentIndex;
        const [range] = event.intervals ?? [];
        if (range) kept.set(at, range);
        else kept.delete(at);
        const query = new URLSearchParams(location.search);
        if (kept.size) query.set("keep", [...kept].map(([axis, [a, b]]) => `${axis}:${a.toFixed(3)}~${b.toFixed(3)}`).join(";"));
        else query.delete("keep");
        history.replaceState(null, "", `?${query}`);
      });
    };

    const start = async () => {
      const answer = await load(place);
      if (!answer) return;
      trials = answer.trials;
      const drawn = chart("scatter", options, (to) => { location.href = to; });
      // It depends on the kernel alone, and another kernel is another page.
      if (document.getElementById("parallel")) brush(chart("parallel", lines).made);
      form.addEventListener("change", (event) => {
        if (event.target.name === "kernel") return form.submit();
        const query = new URLSearchParams(new FormData(form));
        const kept = new URLSearchParams(location.search).get("keep");
        if (kept) query.set("keep", kept);
        history.replaceState(null, "", `?${query}`);
        drawn.draw();
      });
      form.querySelector("button").hidden = true;
      if (!trials.length) say(place, "No trial was timed yet.");
    };
    start();
  }
}
