import random, sys
from pathlib import Path
out=Path(sys.argv[1]); r=random.Random(20)
S={'film':['plot','acting','ending','music'],'novel':['plot','prose','ending','cover'],'play':['cast','staging','ending','dialogue'],'album':['singing','cover','sound','first song'],'concert':['sound','singer','hall','encore'],'hotel':['breakfast','room','view','service'],'restaurant':['soup','service','bread','music'],'phone':['battery','camera','screen','sound'],'museum':['building','guide','café','new wing'],'board game':['rule book','artwork','box','theme'],'podcast':['host','sound','editing','topic'],'garden':['pond','café','path','rose bed'],'bakery':['bread','coffee','service','cake'],'jacket':['zip','lining','colour','cut'],'headset':['sound','microphone','cable','fit'],'language course':['teacher','textbook','room','homework']}
SD={'ferry':['cabin','food','deck','crew'],'exhibition':['lighting','catalogue','guide','hall'],'radio':['sound','aerial','display','handle']}
J={0:['terrible','awful','dreadful','horrible','unbearable','appalling','a disaster','a complete waste of money','the worst I have known','disgusting'],
1:['weak','rather dull','disappointing','a bit boring','not very good','below average','somewhat tedious','slightly annoying','not quite worth the price','a little careless'],
2:['average','okay','neither good nor bad','ordinary','nothing special','so-so','acceptable','middling','much like any other','passable'],
3:['good','nice','pleasant','quite enjoyable','rather fun','likeable','worth a visit','well made','a little better than most','pretty decent'],
4:['brilliant','superb','outstanding','wonderful','perfect','magnificent','a masterpiece','the best I have known','breathtaking','absolutely fantastic']}
JD={0:['atrocious','abysmal'],1:['lacklustre','rather clumsy'],2:['unremarkable','standard'],3:['charming','quite good'],4:['phenomenal','sensational']}
T=['The {s} is {j}.','I found the {s} {j}.','To me, the {s} was {j}.','We thought that the {s} was {j}.','All in all, this {s} is {j}.','My sister calls this {s} {j}.','People asked about the {s}; it is {j}.','Honestly, the {s} was {j}.','This {s}? In a word: {j}.','Their new {s} is {j}.']
B=['The {p} was {o}, but the {s} as a whole is {j}.','Although the {p} was {o}, the {s} is {j}.']
def sentence(label,held):
    subj=dict(S,**SD) if held else S; s=r.choice(list(subj)); 
    j=r.choice(J[label]+(JD[label]*2 if held else []))
    if r.random()<.2:
        other=r.choice([k for k in range(5) if abs(k-label)>=2])
        t=r.choice(B).format(p=r.choice(subj[s]),o=r.choice(J[other]),s=s,j=j)
    else: t=r.choice(T).format(s=s,j=j)
    return t
seen=set()
for split,n in (('train',1200),('dev',300),('test-student',300)):
    labels=[i%5 for i in range(n)]; r.shuffle(labels)
    lines=['\tid\tsentence'+('' if 'test' in split else '\tsentiment')]
    for i,l in enumerate(labels):
        while (t:=sentence(l,split!='train')) in seen: pass
        seen.add(t); lines.append(f"{i}\t{r.getrandbits(100):025x}\t{t}"+('' if 'test' in split else f'\t{l}'))
    (out/f'ids-sst-{split}.csv').write_text('\n'.join(lines)+'\n',encoding='utf-8',newline='')
