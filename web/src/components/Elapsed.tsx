import { useNowUnless } from "../clock";
import { duration } from "../format";

export function Elapsed({ from, to }: { from: number; to: number | null }) {
  const now = useNowUnless(to);
  return <time className="num">{duration(now - from)}</time>;
}
