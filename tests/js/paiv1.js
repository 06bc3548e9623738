// The SDK's older client, PAIV1, with a server of the oldest generation: v1 configurations as nested forms.
'use strict';

const { PAIV1 } = require('@microsoft/openpai-js-sdk');

const { PAI_URI: uri, PAI_USER: username, PAI_PASSWORD: password } = process.env;

const config = {
  jobName: 'old-js',
  image: 'node:18',
  taskRoles: [{ name: 'Main_role', taskNumber: 1, cpuNumber: 1, memoryMB: 64, gpuNumber: 0, command: 'sleep 60' }],
};

async function until(client, states) {
  for (let tries = 0; tries < 1200; tries += 1) {
    const job = await client.job.get(username, 'old-js');
    if (states.includes(job.jobStatus.state)) {
      return job;
    }
    await new Promise(resolve => setTimeout(resolve, 50));
  }
  throw new Error(`waited in vain for ${states}`);
}

async function main() {
  const host = `${uri.replace('http://', '')}/rest-server`;
  const client = new PAIV1.OpenPAIClient({ info: {}, password, rest_server_uri: host, username });
  const seen = {};
  seen.submitted = await client.job.submit(username, config);
  seen.job = await until(client, ['RUNNING']);
  seen.framework = (await client.job.getFrameworkInfo(username, 'old-js')).name;
  seen.listed = (await client.job.list(`username=${username}`)).map(job => job.name);
  seen.stopped = await client.job.execute(username, 'old-js', 'STOP');
  seen.over = (await until(client, ['STOPPED'])).jobStatus.appExitCode;
  seen.deleted = await client.job.delete(username, 'old-js');
  seen.left = await client.job.list();
  console.log(JSON.stringify(seen));
}

main().catch(error => {
  console.error(error);
  process.exitCode = 1;
});
