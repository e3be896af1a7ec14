// server.mjs DIR PORT: @tus/server with its file store, as its documentation sets it up: the peer of W5.
//
// It never syncs: nothing in it calls fsync. What it answers is in the page cache. Ends at SIGTERM.
import { FileStore } from '@tus/file-store'
import { Server } from '@tus/server'

const [directory, port] = process.argv.slice(2)
const tus = new Server({ path: '/files', datastore: new FileStore({ directory }), relativeLocation: true })
tus.listen({ host: '127.0.0.1', port: Number(port) })
process.on('SIGTERM', () => process.exit(0))
