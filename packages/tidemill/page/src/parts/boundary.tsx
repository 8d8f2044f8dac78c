import { Component, type ComponentChildren } from "preact";

import { Failure } from "./failure";

interface BoundaryProps {
  children: ComponentChildren;
}

/** Shows the error of a view instead of an empty page. */
export class Boundary extends Component<BoundaryProps, { error: unknown }> {
  override state = { error: null };

  static override getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  render() {
    if (this.state.error === null) return this.props.children;
    return <Failure error={this.state.error} retry={() => this.setState({ error: null })} />;
  }
}
