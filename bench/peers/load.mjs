// One load for several brokers: each connection sends a message of 600 bytes and waits until that is confirmed, receives
// one, completes it, and begins again. Operations are messages that are completed.
//
//   node load.mjs rabbitmq|nats|tidings ADDRESS CONNECTIONS SECONDS [TOKEN]
//
// Prints one line of JSON.

import http from 'node:http'

const [broker, address, connectionsText, secondsText, token] = process.argv.slice(2)
const connections = Number(connectionsText)
const seconds = Number(secondsText)
const body = Buffer.alloc(600, 'm')
const queue = 'bench'
const warmUp = Math.min(1, seconds / 4)

// A worker makes one turn: sent and confirmed, received, completed. It is closed with its connection.
const brokers = { rabbitmq, nats, tidings }

async function rabbitmq () {
  const { default: amqp } = await import('amqplib')
  const admin = await amqp.connect(address, { noDelay: true })
  const channel = await admin.createChannel()
  await channel.assertQueue(queue, { durable: true, arguments: { 'x-queue-type': 'quorum' } })
  await channel.purgeQueue(queue)
  await admin.close()
  return async () => {
    const connection = await amqp.connect(address, { noDelay: true })
    connection.on('error', () => {})
    const channel = await connection.createConfirmChannel()
    await channel.prefetch(1)
    const waiting = []
    const arrived = []
    await channel.consume(queue, message => {
      const next = waiting.shift()
      if (next) next(message)
      else arrived.push(message)
    })
    const receive = () => arrived.length > 0 ? arrived.shift() : new Promise(resolve => waiting.push(resolve))
    return {
      async turn () {
        await new Promise((resolve, reject) => {
          channel.sendToQueue(queue, body, { persistent: true }, error => error ? reject(error) : resolve())
        })
        // The acknowledgement of a consumer has no answer in AMQP 0-9-1.
        channel.ack(await receive())
      },
      close: () => connection.close()
    }
  }
}

async function nats () {
  const { connect, AckPolicy, DiscardPolicy, RetentionPolicy, StorageType } = await import('nats')
  const admin = await connect({ servers: address })
  const manager = await admin.jetstreamManager()
  await manager.streams.delete(queue).catch(() => {})
  await manager.streams.add({
    name: queue, subjects: [queue], retention: RetentionPolicy.Workqueue, storage: StorageType.File,
    discard: DiscardPolicy.New
  })
  await manager.consumers.add(queue, { durable_name: queue, ack_policy: AckPolicy.Explicit, max_ack_pending: 20000 })
  await admin.close()
  return async () => {
    const connection = await connect({ servers: address })
    const stream = connection.jetstream()
    const consumer = await stream.consumers.get(queue, queue)
    return {
      async turn () {
        await stream.publish(queue, body)
        const message = await consumer.next({ expires: 5000 })
        if (message && !await message.ackAck()) throw new Error('an acknowledgement was not confirmed')
        return message !== null
      },
      close: () => connection.close()
    }
  }
}

async function tidings () {
  const { hostname, port } = new URL(address)
  const call = (agent, method, path, type, content) => new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': type, 'content-length': content.length }
    const request = http.request({ hostname, port, method, path, agent, headers }, response => {
      const parts = []
      response.on('data', part => parts.push(part))
      response.on('end', () => {
        const text = Buffer.concat(parts).toString()
        if (response.statusCode >= 300) reject(new Error(`${response.statusCode} ${text}`))
        else resolve(text)
      })
    })
    request.on('error', reject)
    request.end(content)
  })
  const json = value => Buffer.from(JSON.stringify(value))
  const settings = { kind: 'queue', lockSeconds: 300, maxDeliveryCount: 100 }
  await call(undefined, 'PUT', `/bus/${queue}`, 'application/json', json(settings))
  await call(undefined, 'POST', `/bus/${queue}/purge`, 'application/json', json({}))
  return async () => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
    // What was received and not settled yet: the call that receives the next one does it, too.
    let done = []
    return {
      async turn () {
        await call(agent, 'POST', `/bus/${queue}/messages`, 'text/plain', body)
        const ask = json({ max: 1, waitSeconds: 5, settle: done.length > 0 ? done : undefined })
        const answer = JSON.parse(await call(agent, 'POST', `/bus/${queue}/receive`, 'application/json', ask))
        done = answer.messages.map(({ lockToken }) => ({ lockToken, action: 'complete' }))
        return (answer.settled ?? []).some(({ status }) => status === 'ok')
      },
      close: () => agent.destroy()
    }
  }
}

const open = await brokers[broker]()
const workers = []
for (let n = 0; n < connections; n++) workers.push(await open())
const begin = performance.now() + warmUp * 1000
const end = begin + seconds * 1000
const times = []
let errors = 0
let firstError

async function run (worker) {
  while (performance.now() < end) {
    const start = performance.now()
    try {
      const completed = await worker.turn()
      const now = performance.now()
      if (completed !== false && start >= begin && now <= end) times.push(now - start)
    } catch (error) {
      errors += 1
      firstError ??= String(error)
      await new Promise(resolve => setTimeout(resolve, 50))
    }
  }
}

// Whoever waits for a message that another one has taken would wait for ever.
const over = new Promise(resolve => setTimeout(resolve, (warmUp + seconds + 10) * 1000).unref())
await Promise.race([Promise.all(workers.map(run)), over])
times.sort((a, b) => a - b)
const quantile = share => Number((times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0).toFixed(3))
console.log(JSON.stringify({
  broker, connections, messages_per_s: Math.round(times.length / seconds), p50_ms: quantile(0.5), p99_ms: quantile(0.99),
  errors, first_error: firstError
}))
process.exit(0)
