// tardis-dev's own mapper and order book on the same Binance frames: node tardis.mjs FILE RUNS
// Prints the median microseconds per frame of parse + map + update.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const load = createRequire(process.env.TARDIS_ROOT + '/')
const { normalizeBookChanges } = load('tardis-dev/dist/mappers')
const { OrderBook } = load('tardis-dev/dist/orderbook')
const [snapshot, ...frames] = readFileSync(process.argv[2], 'utf8').trim().split('\n')
const runs = Number(process.argv[3])

function pass() {
  const now = new Date()
  const mapper = normalizeBookChanges('binance', now)
  const book = new OrderBook()
  const take = (line) => {
    for (const change of mapper.map(JSON.parse(line), now) || []) book.update(change)
  }
  take(snapshot)
  const began = process.hrtime.bigint()
  for (const frame of frames) take(frame)
  return Number(process.hrtime.bigint() - began) / frames.length / 1e3
}

const costs = []
for (let run = 0; run < runs + 2; run++) costs.push(pass()) // two passes warm the JIT
console.log(costs.slice(2).sort((a, b) => a - b)[runs >> 1])
