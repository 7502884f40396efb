// Tests E2B's own JavaScript SDKs against a server.

import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'
import { NotFoundError } from 'e2b'

const pause = (millis) => new Promise((done) => setTimeout(done, millis))

async function until(what, isDone) {
  for (let n = 0; n < 1000; n += 1) {
    if (await isDone()) return
    await pause(100)
  }
  throw new Error(`waited in vain for ${what}`)
}

async function lives() {
  const sandbox = await Sandbox.create({ timeoutMs: 60_000, metadata: { kind: 'js' } })
  assert(await sandbox.isRunning())
  assert.deepEqual((await sandbox.getInfo()).metadata, { kind: 'js' })
  await sandbox.setTimeout(90_000)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.runCode('1 + 1')).text, '2')
  const listed = await Sandbox.list({ query: { metadata: { kind: 'js' } } }).nextItems()
  assert.deepEqual(listed.map((each) => each.sandboxId), [sandbox.sandboxId])
  await sandbox.kill()
  assert(!(await sandbox.isRunning()))
}

async function code(sandbox) {
  const seen = []
  const ran = await sandbox.runCode("print('a'); 7", {
    onStdout: (message) => seen.push(message.line),
    onResult: (result) => seen.push(result.text),
  })
  assert.equal(ran.text, '7')
  assert.deepEqual(seen, ['a\n', '7'])
  assert.equal((await sandbox.runCode('1 / 0')).error.name, 'ZeroDivisionError')
  const variable = "import os; os.environ['A']"
  assert.equal((await sandbox.runCode(variable, { envs: { A: 'b' } })).text, 'b')
  const script = 'const { sep } = await import("node:path"); sep'
  assert.equal((await sandbox.runCode(script, { language: 'js' })).text, '/')
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, '/tmp')
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.listCodeContexts()).at(-1).id, context.id)
  await sandbox.removeCodeContext(context)
  await sandbox.runCode('import time\nx = 5')
  await assert.rejects(sandbox.runCode('time.sleep(100)', { timeoutMs: 2000 }))
  assert.equal((await sandbox.runCode('x')).text, '5')
}

async function files(sandbox) {
  const { files } = sandbox
  await files.write('a/b', 'text')
  assert.equal(await files.read('a/b'), 'text')
  await files.write([{ path: 'one', data: '1' }, { path: 'd/two', data: '2' }])
  assert.equal(await files.read('d/two'), '2')
  const big = new Uint8Array(10_000_000).fill(200)
  await files.write('big', big.buffer)
  assert.deepEqual(await files.read('big', { format: 'bytes' }), big)
  assert.deepEqual((await files.list('d')).map((entry) => entry.name), ['two'])
  assert((await files.makeDir('new')) && !(await files.makeDir('new')))
  await files.rename('one', 'new/one')
  assert((await files.exists('new/one')) && !(await files.exists('one')))
  assert.equal((await files.getInfo('new/one')).size, 1)
  const events = []
  const watch = await files.watchDir('new', (event) => events.push(event))
  await files.write('new/three', '3')
  await until('the change', () => events.some((event) => event.name === 'three'))
  await watch.stop()
  await files.remove('new')
  await assert.rejects(files.read('new/one'), NotFoundError)
  const url = await sandbox.downloadUrl('d/two')
  assert.equal(await (await fetch(url)).text(), '2')
}

async function commands(sandbox) {
  const { commands, pty } = sandbox
  const ran = await commands.run('echo out; echo err >&2')
  assert.deepEqual([ran.stdout, ran.stderr, ran.exitCode], ['out\n', 'err\n', 0])
  await assert.rejects(commands.run('exit 3'), (error) => error.exitCode === 3)
  const reader = await commands.run('cat', { background: true, stdin: true })
  assert((await commands.list()).some((each) => each.pid === reader.pid))
  await commands.sendStdin(reader.pid, 'in')
  await commands.closeStdin(reader.pid)
  assert.equal((await reader.wait()).stdout, 'in')
  const sleeper = await commands.run('sleep 1000', { background: true })
  assert(await sleeper.kill())
  await assert.rejects(sleeper.wait())
  assert(!(await sleeper.kill()))
  let seen = ''
  const onData = (data) => (seen += new TextDecoder().decode(data))
  const terminal = await pty.create({ cols: 80, rows: 24, onData })
  await pty.resize(terminal.pid, { cols: 100, rows: 30 })
  await pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit\n'))
  await terminal.wait()
  assert(seen.includes('30 100'), seen)
}

await lives()
console.log('e2b javascript: lives: ok')
const sandbox = await Sandbox.create({ timeoutMs: 300_000 })
for (const scenario of [code, files, commands]) {
  await scenario(sandbox)
  console.log(`e2b javascript: ${scenario.name}: ok`)
}
await sandbox.kill()
