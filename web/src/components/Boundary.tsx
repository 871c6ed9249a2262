import { Component, type ReactNode } from "react";

/** A fault of this page must not look like a fault of the work: it goes on without the page. */
export class Boundary extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError() {
    return { failed: true };
  }

  override render() {
    if (!this.state.failed) return this.props.children;
    return (
      <main className="stage" role="alert">
        <h1>This page stumbled</h1>
        <p>The work itself is not affected. Reloading the page usually helps.</p>
        <button type="button" className="button" onClick={() => location.reload()}>Reload</button>
      </main>
    );
  }
}
