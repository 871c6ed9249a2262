const dollars = new Intl.NumberFormat("en-US", { style: "currency", currency: "USD" });

/** Sums of floats leave dust that is not money. */
const DUST_USD = 0.000_001;

export function money(usd: number): string {
  if (Math.abs(usd) < DUST_USD) return dollars.format(0);
  return usd > 0 && usd < 0.01 ? "<$0.01" : dollars.format(usd);
}

/** 0:07, 12:40, 3:05:00, 2 d 3 h */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  const two = (value: number) => String(value).padStart(2, "0");
  if (hours >= 24) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  if (hours > 0) return `${hours}:${two(minutes % 60)}:${two(seconds % 60)}`;
  return `${minutes}:${two(seconds % 60)}`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function timeOfDay(at: number): string {
  return clock.format(at);
}

export function shortHash(commit: string): string {
  return commit.slice(0, 7);
}
