// The best plan so far of several runs, one curve each.
"use strict";
{
  const { colour, number, unitOf, duration, text, tooltip, axis, chart, say } = fuseplan;
  const place = document.getElementById("runs");
  const switches = document.querySelector(".switch");
  const ids = place.dataset.jobs.split(" ");
  const titles = place.dataset.titles.split("\n");
  const tints = ["accent", "good", "contraction", "warn", "bad", "library"];
  const kinds = ["solid", "dashed", "dotted"];
  let across = new URLSearchParams(location.search).get("across") === "time" ? "time" : "trial";
  let runs = [];

  const at = (point) => (across === "time" ? point[1] : point[0]);
  const options = () => {
    const times = runs.flatMap((run) => run.points.map((point) => point[2]));
    const [scale, unit] = unitOf(Math.max(...times));
    const isWide = Math.max(...times) > 20 * Math.min(...times);
    return {
      animation: false, textStyle: text(),
      legend: { top: 0, left: 0, orient: "vertical", textStyle: text(), itemWidth: 22, icon: "rect", itemHeight: 3 },
      grid: { left: 56, right: 24, top: 24 + 22 * runs.length, bottom: 44 },
      tooltip: {
        ...tooltip(), trigger: "axis",
        formatter: (items) => items.map((item) => `${item.seriesName}: ${duration(item.value[1] * scale)}`).join("\n"),
      },
      xAxis: axis(across === "time" ? "seconds since submission" : "trials", { type: "value", min: 0, max: "dataMax", nameGap: 26, splitLine: { show: false }, axisLabel: { ...text(), formatter: (v) => number(v), hideOverlap: true } }),
      yAxis: { type: isWide ? "log" : "value", name: unit, scale: true, nameTextStyle: { ...text(), align: "right" }, axisLabel: { ...text(), formatter: number }, splitLine: { lineStyle: { color: colour("line") } } },
      series: runs.map((run, i) => ({
        type: "line", name: run.title, step: "end", showSymbol: run.points.length === 1, symbolSize: 7,
        data: run.points.map((point) => [at(point), point[2] / scale]),
        lineStyle: { width: 2, color: colour(tints[i % tints.length]), type: kinds[Math.floor(i / 2) % kinds.length] },
        itemStyle: { color: colour(tints[i % tints.length]) },
      })),
    };
  };

  const press = () => {
    for (const button of switches.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset.axis === across));
  };

  const start = async () => {
    place.setAttribute("aria-busy", "true");
    try {
      const told = await Promise.all(ids.map(async (id) => {
        const answer = await fetch(`/v1/jobs/${id}/history?points=400`);
        if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
        return answer.json();
      }));
      // Two runs of one model have one title: what is drawn twice is told apart.
      const seen = new Map();
      const named = titles.map((title) => {
        seen.set(title, (seen.get(title) ?? 0) + 1);
        return seen.get(title) > 1 ? `${title} (${seen.get(title)})` : title;
      });
      runs = told.map((one, i) => ({ title: named[i], points: one.points })).filter((run) => run.points.length);
    } catch (error) {
      say(place, `The curves could not be loaded (${error.message}). Reload the page to try again.`);
      return;
    } finally {
      place.removeAttribute("aria-busy");
    }
    if (!runs.length) return say(place, "None of these runs has a trial yet. Their curves start with the first measurement.");
    const drawn = chart("runs", options);
    switches.hidden = false;
    press();
    switches.addEventListener("click", (event) => {
      if (!event.target.dataset.axis) return;
      across = event.target.dataset.axis;
      const query = new URLSearchParams(location.search);
      if (across === "time") query.set("across", "time");
      else query.delete("across");
      history.replaceState(null, "", `?${query}`);
      press();
      drawn.draw();
    });
  };
  start();
}
