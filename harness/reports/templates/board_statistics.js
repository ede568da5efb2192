// Two runs on the same queries, as harness/statistics/significance.py compares them, with other draws: for pairs and parts
// of the queries that the leaderboard has not tested.

const RESAMPLES = 10000, SURE = .95, FEWEST = { bias: 10, differ: 20 };
const UNIT = 1e6; // differences are whole millionths, so that sums are exact

// Random whole numbers below 2^32, the same in every browser (Marsaglia's xorshift128)
function draws(seed) {
  let [x, y, z, w] = [seed >>> 0, 362436069, 521288629, 88675123];
  const next = () => {
    const t = x ^ (x << 11);
    [x, y, z] = [y, z, w];
    w = w ^ (w >>> 19) ^ t ^ (t >>> 8);
    return w >>> 0;
  };
  for (let i = 0; i < 32; i += 1) next();
  return next;
}

// The means of resampled differences, ascending
function resampledMeans(differences) {
  const n = differences.length, next = draws(1), means = new Float64Array(RESAMPLES);
  for (let i = 0; i < RESAMPLES; i += 1) {
    let sum = 0;
    for (let j = 0; j < n; j += 1) sum += differences[Math.floor(next() / 2 ** 32 * n)];
    means[i] = sum / n;
  }
  return means.sort();
}

// The share of a standard normal distribution below a point (Numerical Recipes' erfc, to 1e-7), and the point of a share
function normalShare(point) {
  const z = Math.abs(point) / Math.SQRT2, t = 1 / (1 + z / 2);
  const terms = [-1.26551223, 1.00002368, .37409196, .09678418, -.18628806, .27886807, -1.13520398, 1.48851587, -.82215223, .17087277];
  const tail = t * Math.exp(-z * z + terms.reduceRight((sum, one) => one + t * sum, 0)) / 2;
  return point > 0 ? 1 - tail : tail;
}
function normalPoint(share) {
  let [low, high] = [-9, 9];
  for (let i = 0; i < 60; i += 1) normalShare((low + high) / 2) < share ? low = (low + high) / 2 : high = (low + high) / 2;
  return (low + high) / 2;
}

// The BCa interval of the mean of differences (Efron 1987) from its resampled means; the percentile interval where BCa is
// undefined or there are fewer than 10 queries
function interval95(differences, means) {
  const n = differences.length, mean = differences.reduce((sum, one) => sum + one, 0) / n, slack = 1e-9 * UNIT;
  if (n < 2) return [NaN, NaN];
  if (differences.every((one) => one === differences[0])) return [mean, mean];
  let below = 0, upTo = 0;
  for (const one of means) {
    below += one < mean - slack;
    upTo += one <= mean + slack;
  }
  const share = (below + upTo) / 2 / means.length, defined = share > 0 && share < 1 && n >= FEWEST.bias;
  const bias = defined ? normalPoint(share) : 0;
  const deviations = differences.map((one) => one - mean), moment = (power) => deviations.reduce((sum, one) => sum + one ** power, 0);
  const acceleration = defined ? moment(3) / (6 * moment(2) ** 1.5) : 0;
  return [(1 - SURE) / 2, (1 + SURE) / 2].map((end) => {
    const shifted = bias + normalPoint(end), place = normalShare(bias + shifted / (1 - acceleration * shifted)) * (means.length - 1);
    const lower = Math.floor(place), upper = Math.min(lower + 1, means.length - 1);
    return means[lower] + (place - lower) * (means[upper] - means[lower]);
  });
}

// Two-sided p of the paired randomisation test: from all ways to swap the runs on the queries where they differ, or from a sample
function randomisation(differences) {
  const changed = differences.filter((one) => one !== 0), n = changed.length;
  if (!n) return 1;
  const observed = Math.abs(changed.reduce((sum, one) => sum + one, 0));
  const asFar = (swapped) => Math.abs(changed.reduce((sum, one, i) => sum + (swapped(i) ? -one : one), 0)) >= observed;
  let count = 0;
  if (2 ** n <= RESAMPLES) {
    for (let ways = 0; ways < 2 ** n; ways += 1) count += asFar((i) => ways >> i & 1);
    return count / 2 ** n;
  }
  const next = draws(2);
  let bits = 0;
  for (let i = 0; i < RESAMPLES; i += 1) count += asFar((j) => (j % 32 ? bits : bits = next()) >>> j % 32 & 1);
  return (count + 1) / (RESAMPLES + 1);
}

// values of two runs on the same queries, NaN where undefined -> {n, mean, low, high, p, wins, ties, losses, means}; means: those
// of resampled queries, ascending. Numbers are in the measure's unit.
function comparePair(first, second) {
  const differences = [...first].map((one, i) => Math.round(UNIT * (one - second[i]))).filter((one) => !Number.isNaN(one));
  const n = differences.length, means = n ? resampledMeans(differences) : new Float64Array();
  const wins = differences.filter((one) => one > 0).length, losses = differences.filter((one) => one < 0).length;
  const mean = differences.reduce((sum, one) => sum + one, 0) / n, [low, high] = interval95(differences, means);
  return { n, mean: mean / UNIT, low: low / UNIT, high: high / UNIT, p: randomisation(differences), wins, losses, ties: n - wins - losses,
    means: means.map((one) => one / UNIT) };
}
