import { Unbuilt } from "../parts/unbuilt";

export default function Compare() {
  return <Unbuilt title="Compare" />;
}
