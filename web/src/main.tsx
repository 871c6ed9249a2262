import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { Boundary } from "./components/Boundary";
import { startLive } from "./live";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/parts.css";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");

createRoot(root).render(
  <StrictMode>
    <Boundary>
      <App live={startLive()} />
    </Boundary>
  </StrictMode>,
);
