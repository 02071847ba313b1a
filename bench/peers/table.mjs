// Writes the table of a run: node table.mjs ROWS OWN RABBITMQ-VERSION NATS-VERSION SECONDS [FILE]
// Without a file it is printed.

import fs from 'node:fs'
import os from 'node:os'

const [rowsFile, ownFile, rabbitVersion, natsVersion, seconds, file] = process.argv.slice(2)
const lines = path => fs.readFileSync(path, 'utf8').split('\n').filter(Boolean).map(line => JSON.parse(line))
const rows = lines(rowsFile)
const own = lines(ownFile).filter(row => row.name === 'queue')
const counts = [...new Set(rows.map(row => row.connections))].sort((a, b) => a - b)
const rate = (list, n, name) => list.find(row => row.connections === n)?.[name] ?? 0
const of = broker => rows.filter(row => row.broker === broker)
const kinds = [
  [`RabbitMQ ${rabbitVersion}, quorum queue`, 'yes', n => rate(of('rabbitmq'), n, 'messages_per_s'), of('rabbitmq')],
  [`NATS JetStream ${natsVersion}, file storage`, 'no', n => rate(of('nats'), n, 'messages_per_s'), of('nats')],
  ['Tidings, the same client', 'yes', n => rate(of('tidings'), n, 'messages_per_s'), of('tidings')],
  ['Tidings, `tidings bench queue`', 'yes', n => Math.round(rate(own, n, 'ops_per_s')), undefined]
]
const most = Math.max(...counts)
const table = [
  `| broker | confirmed means fsynced | ${counts.map(n => `${n} conn.`).join(' | ')} | p50 / p99 ms of a turn at ${most} |`,
  `| --- | --- | ${counts.map(() => '---:').join(' | ')} | ---: |`,
  ...kinds.map(([name, synced, of, list]) => {
    const last = list?.find(row => row.connections === most)
    const times = last ? `${last.p50_ms} / ${last.p99_ms}` : ''
    return `| ${name} | ${synced} | ${counts.map(of).join(' | ')} | ${times} |`
  })
].join('\n')
const errors = rows.reduce((sum, row) => sum + row.errors, 0) + own.reduce((sum, row) => sum + row.errors, 0)
const text = `Measured on ${new Date().toISOString().slice(0, 10)} with \`bench/peers/run\` on a machine with ${os.cpus().length} cores, ${seconds} s for each
figure, all in one run, one broker at a time, on loopback and on the same disk; ${errors} errors.

Messages of 600 bytes that are sent and confirmed, received and completed, per second. Every connection does one such turn
after the other. The client of the first three rows is the same program (\`bench/peers/load.mjs\`, Node, one thread, on the
same cores), with amqplib, nats and plain HTTP; the last row is the server with its own load generator.

${table}

Settings: each broker as its Debian package comes, one node, data in a temporary directory.

- RabbitMQ: a durable quorum queue with one member, persistent messages, publisher confirms, prefetch 1, consumer
  acknowledgements (which AMQP 0-9-1 does not confirm). A quorum queue confirms after its log is fsynced.
- NATS: a work-queue stream in files, a durable pull consumer, \`ackAck\`. Its acknowledgement means that the message is
  with the operating system; files are synced every two minutes.
- Tidings: a queue with its defaults. Every 2xx means that the change is fsynced: sending, receiving (which counts the
  delivery) and completing alike. A turn is two calls: the one that receives a message completes the one before.`

const [begin, end] = ['<!-- peers: begin (written by `bench/peers/run`) -->', '<!-- peers: end -->']
if (!file) {
  console.log(text)
} else {
  const before = fs.readFileSync(file, 'utf8')
  const [from, to] = [before.indexOf(begin), before.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`${file} has no place for the table`)
  fs.writeFileSync(file, `${before.slice(0, from + begin.length)}\n\n${text}\n\n${before.slice(to)}`)
  console.error(`written to ${file}`)
}
