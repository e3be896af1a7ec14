// standalone.mjs: tests with servers of their own. Registered like those of the intake, run beside them.
const tests = []

const POOL = 2 // tests of one pool at the same time; without a pool a test waits for none

// run(world): world has dir, and what the suite put there. name is its line.
export function standalone(name, run, { seconds = 120, pool } = {}) {
  tests.push({ name, run, seconds, pool })
}

export class Standalone {
  constructor(world) {
    const only = process.env.ONLY && new RegExp(process.env.ONLY)
    this.world = world
    this.tests = tests.filter((x) => !only || only.test(x.name)).map((x) => ({ ...x, failures: [] }))
    world.chosen = new Set(this.tests.map((x) => x.name))
  }

  // calm: a promise that pools wait for, so that they take no time from tests that look at the clock.
  async run(calm) {
    const pools = Object.groupBy(this.tests, (t) => t.pool ?? '')
    const { '': free = [], ...queues } = pools
    const pooled = async () => {
      await calm
      await Promise.all(Object.values(queues).flatMap((q) => Array.from({ length: POOL }, () => this.#queue(q))))
    }
    await Promise.all([...free.map((t) => this.#one(t)), pooled()])
  }

  async #queue(todo) {
    for (let t = todo.shift(); t; t = todo.shift()) await this.#one(t)
  }

  async #one(t) {
    const begun = Date.now()
    let timer
    const limit = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`not done after ${t.seconds} s`)), t.seconds * 1000)
    })
    try {
      await Promise.race([t.run(this.world), limit])
    } catch (error) {
      t.failures.push(error.stack ?? String(error))
    } finally {
      clearTimeout(timer)
      t.took = Date.now() - begun
      t.done = true
    }
  }
}
