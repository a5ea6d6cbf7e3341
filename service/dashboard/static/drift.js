// Bias and error of predictions, job by job, with what was calibrated between.
"use strict";
{
  const { colour, number, text, tooltip, axis, chart, load, narrow } = fuseplan;
  const place = document.getElementById("drift");

  const options = (told) => () => {
    const jobs = told.jobs.filter((job) => job.accuracy);
    const time = (moment) => new Date(moment).getTime();
    const line = (name, tint, read) => ({
      type: "line", name, symbol: "circle", symbolSize: 8, lineStyle: { width: 1.5, color: colour(tint) }, itemStyle: { color: colour(tint) }, cursor: "pointer",
      data: jobs.map((job) => ({ value: [time(job.at), read(job.accuracy)], href: `/jobs/${job.job}/analysis`, told: `${job.title || job.job}\n${name}: ${number(read(job.accuracy))}\n${job.accuracy.runs} trials` })),
    });
    const moments = [...jobs.map((job) => time(job.at)), ...told.calibrations.map((c) => time(c.created_at)), ...told.runs.map((run) => time(run.at))];
    const least = Math.min(...moments), most = Math.max(...moments);
    const room = Math.max(60_000, (most - least) * 0.04);
    const tick = (at) => {
      const told = new Date(at).toISOString();
      return most - least < 3_600_000 ? told.slice(11, 19) : told.slice(narrow() ? 11 : 5, 16).replace("T", " ");
    };
    const highest = Math.max(1.2, ...jobs.flatMap((job) => [job.accuracy.median_ratio, job.accuracy.mean_relative_error]));
    return {
      animation: false, textStyle: text(),
      legend: { data: ["measured over predicted", "mean error", ...(told.runs.length ? ["accuracy run"] : [])], top: 0, left: 0, textStyle: text(), itemWidth: 14 },
      grid: { left: 48, right: 24, top: 40, bottom: 44 },
      tooltip: { ...tooltip(), trigger: "item", formatter: (item) => item.data.told ?? "" },
      xAxis: axis("", { type: "time", min: least - room, max: most + room, axisLabel: { ...text(), hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: (at) => tick(at) }, splitLine: { show: false } }),
      yAxis: axis("", { type: "value", min: 0, max: Math.ceil(highest / 0.3) * 0.3, axisLabel: { ...text(), formatter: (v) => number(v) } }),
      series: [
        {
          ...line("measured over predicted", "accent", (a) => a.median_ratio),
          markLine: {
            silent: true, symbol: "none", label: { color: colour("soft"), fontSize: 11, formatter: "{b}", position: "insideEndTop" },
            data: [
              { name: "fair", yAxis: 1, lineStyle: { color: colour("faint"), type: "solid", width: 1 } },
              ...told.calibrations.map((c) => ({ name: "calibrated", xAxis: time(c.created_at), lineStyle: { color: colour("good"), type: "dashed" } })),
            ],
          },
        },
        line("mean error", "warn", (a) => a.mean_relative_error),
        {
          type: "scatter", name: "accuracy run", symbol: "diamond", symbolSize: 12, itemStyle: { color: colour("contraction") },
          data: told.runs.flatMap((run) => (run.summary.rows ?? []).slice(0, 1).filter((row) => typeof row.model === "number").map((row) => ({ value: [time(run.at), row.model], told: `fuseplan accuracy on ${run.host}\n${row.what}: ${number(row.model)}` }))),
        },
      ],
    };
  };

  const start = async () => {
    const told = await load(place);
    if (told) chart("drift", options(told), (to) => { location.href = to; });
  };
  start();
}
