// Preloaded (node --import) into programs that cannot be told to send a token: every request carries MCP_SERVER_TOKEN.
import { channel } from "node:diagnostics_channel";

channel("undici:request:create").subscribe(({ request }) => {
  request.addHeader("authorization", `Bearer ${process.env.MCP_SERVER_TOKEN}`);
});
