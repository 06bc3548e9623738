// A person's way through the SDK's PAIV2 client, from login to logs; what each call returned goes to stdout.
'use strict';

const http = require('http');
const { PAIV2 } = require('@microsoft/openpai-js-sdk');

const { PAI_URI: uri, PAI_USER: username, PAI_PASSWORD: password } = process.env;
const cluster = { alias: 'local', https: false, password, pai_uri: uri, username };

const document = {
  protocolVersion: 2,
  name: 'from-js',
  type: 'job',
  prerequisites: [{ name: 'image', type: 'dockerimage', uri: 'node:18' }],
  secrets: { word: 'hush' },
  taskRoles: {
    main: {
      instances: 1,
      dockerImage: 'image',
      resourcePerInstance: { cpu: 1, memoryMB: 64, gpu: 0 },
      commands: ['echo "said <% $secrets.word %>"'],
    },
  },
};

function text(path) {
  return new Promise((resolve, reject) => {
    http.get(uri + path, answer => {
      let body = '';
      answer.on('data', piece => (body += piece));
      answer.on('end', () => resolve(body));
    }).on('error', reject);
  });
}

async function until(client, name, states) {
  for (let tries = 0; tries < 1200; tries += 1) {
    const job = await client.job.getJob(username, name);
    if (states.includes(job.jobStatus.state)) {
      return job;
    }
    await new Promise(resolve => setTimeout(resolve, 50));
  }
  throw new Error(`waited in vain for ${states} of ${name}`);
}

async function refusal(call) {
  try {
    return { accepted: await call };
  } catch (error) {
    return { status: error.data && error.data.status, code: error.data && error.data.code, message: error.message };
  }
}

async function jobs(client, seen) {
  seen.created = await client.job.createJob(document);
  seen.twice = await refusal(client.job.createJob(document));
  seen.job = await until(client, 'from-js', ['SUCCEEDED', 'FAILED']);
  seen.attempt = await client.job.getJob(username, 'from-js', 0);
  seen.config = await client.job.getJobConfig(username, 'from-js');
  seen.listed = await client.job.listJobs({ keyword: 'from-js', limit: 10, withTotalCount: true });
  await client.job.addTag(username, 'from-js', 'red');
  seen.tagged = (await client.job.getJob(username, 'from-js')).tags;
  await client.job.deleteTag(username, 'from-js', 'red');
  seen.untagged = (await client.job.getJob(username, 'from-js')).tags;
  seen.events = await client.job.listEvents(username, 'from-js', { type: 'Normal' });
  seen.task = await client.job.getTask(username, 'from-js', 0, 'main', 0);
  seen.logs = await client.job.getTaskLogs(username, 'from-js', 0, 'main', 0, 0, true);
  seen.output = await text(seen.logs.locations.find(log => log.name === 'stdout').uri);
  seen.healthy = await client.jobHistory.getJobAttemptsHealthz(username, 'from-js');
  seen.attempts = await client.jobHistory.getJobAttempts(username, 'from-js');
  seen.first = await client.jobHistory.getJobAttempt(username, 'from-js', 0);
}

async function stopping(client, seen) {
  const main = { ...document.taskRoles.main, commands: ['sleep 60'] };
  await client.job.createJob({ ...document, name: 'js-sleeper', taskRoles: { main } });
  await until(client, 'js-sleeper', ['RUNNING']);
  seen.stop = await client.job.updateJobExecutionType(username, 'js-sleeper', 'STOP');
  seen.stopped = (await until(client, 'js-sleeper', ['STOPPED'])).jobStatus.state;
}

async function people(client, seen) {
  await client.user.createUser({ username: 'bob', password: 'bob-secret' });
  await client.group.createGroup({ groupname: 'team', description: 'before', externalName: '', extension: {} });
  await client.group.updateGroup({ groupname: 'team', description: 'after' });
  seen.group = await client.group.getGroup('team');
  await client.user.updateUserGroup('bob', 'team');
  seen.members = await client.group.getGroupMembers('team');
  await client.user.deleteUserGroup('bob', 'team');
  await client.user.updateUserGrouplist('bob', ['default']);
  await client.user.updateUser({ username: 'bob', email: 'bob@example.com' });
  await client.user.updateUserSelf({ username, email: 'me@example.com' });
  seen.users = await client.user.getAllUser();
  seen.bob = await client.user.getUser('bob');
  await client.user.deleteUser('bob');
  await client.group.deleteGroup('team');
  seen.groups = (await client.group.getAllGroup()).map(group => group.groupname);
}

async function resources(client, seen) {
  seen.info = await client.api.getClusterInfo();
  seen.virtualClusters = await client.virtualCluster.listVirtualClusters();
  seen.virtualCluster = await client.virtualCluster.getVirtualCluster('default');
  seen.skuTypes = await client.virtualCluster.getVirtualClusterSkuTypes('default');
  seen.storages = await client.storage.getStorages(true);
  seen.storage = await client.storage.getStorage('home');
  seen.nodes = await client.kubernetes.getK8sNodes();
  seen.pods = await client.kubernetes.getK8sPods();
}

async function tokens(client, seen) {
  const { token } = await client.token.createApplicationToken();
  seen.applied = await new PAIV2.OpenPAIClient({ ...cluster, password: undefined, token }).job.listJobs();
  seen.tokens = (await client.token.getTokens()).tokens.includes(token);
  await client.token.deleteToken(token);
  seen.revoked = await refusal(new PAIV2.OpenPAIClient({ ...cluster, password: undefined, token }).job.listJobs());
  seen.logout = await client.authn.basicLogout();
  seen.after = await refusal(client.job.listJobs());
}

async function main() {
  const seen = {};
  const client = new PAIV2.OpenPAIClient({ ...cluster });
  seen.wrong = await refusal(client.authn.basicLogin(username, 'not-the-password'));
  seen.login = await client.authn.basicLogin(username, password);
  for (const part of [resources, jobs, stopping, people, tokens]) {
    await part(client, seen);
  }
  delete seen.login.token;
  console.log(JSON.stringify(seen));
}

main().catch(error => {
  console.error(error);
  process.exitCode = 1;
});
